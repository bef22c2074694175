#!/bin/sh
# Prints the commit of the git repository in a folder, and "-dirty" if files were changed: commit.sh FOLDER
# In an unpacked archive of git, without a repository, this file itself names the commit (.gitattributes). Exit status 1 if neither
# does. A build calls it, so it writes nothing: no lock, no index. `meson dist` calls it as commit.sh --archive, for an archive that
# names its commit in the same way.
archived='$Format:%H$'
git() { command git --no-optional-locks --git-dir="$folder/.git" --work-tree="$folder" "$@" 2>/dev/null; }
folder=$1
if [ "$folder" = --archive ]; then
  folder=$MESON_PROJECT_SOURCE_ROOT
  sed -i "s/^archived=.*/archived='$(git rev-parse HEAD)'/" "$MESON_PROJECT_DIST_ROOT/scripts/commit.sh"
  exit
fi
if commit=$(git rev-parse --short=12 HEAD) && changes=$(git status --porcelain --untracked-files=no); then
  echo "$commit${changes:+-dirty}"
else
  case $archived in *:*) exit 1 ;; esac
  printf '%.12s\n' "$archived"
fi
