#!/bin/sh
# Prints the commit of the git repository in a folder, and "-dirty" if files were changed: commit.sh FOLDER
# Exit status 1 if the folder has no repository. A build calls it, so it writes nothing: no lock, no index.
git() { command git --no-optional-locks --git-dir="$folder/.git" --work-tree="$folder" "$@" 2>/dev/null; }
folder=$1
commit=$(git rev-parse --short=12 HEAD) && changes=$(git status --porcelain --untracked-files=no) || exit 1
echo "$commit${changes:+-dirty}"
