#!/usr/bin/env bash
# Builds packages of the newest commit: package.sh deb|rpm [FOLDER] (default: build-packages). FOLDER gets the packages.
# Two builds of .deb are equal byte for byte. Needs `scripts/deps.sh build package`, and no network.
# The version is that of meson.build; unless the commit has the tag of this version, with time (UTC) and commit: 0.3.0~202611290940.1a2b3c4d.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  deb) tools="dpkg-buildpackage dh" ;;
  rpm) tools=rpmbuild ;;
  -h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
  *) echo "package.sh: unknown kind of package \"${1:-}\"; use deb or rpm" >&2; exit 2 ;;
esac
for tool in $tools; do
  command -v "$tool" >/dev/null ||
    { echo "package.sh: $tool is not installed; run scripts/deps.sh build package" >&2; exit 77; }
done

mkdir -p "${2:-build-packages}"
folder=$(realpath "${2:-build-packages}")
export LC_ALL=C.UTF-8 TZ=UTC
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" meson.build)
if ! git tag --points-at HEAD | grep -Fqx "v$version"; then
  version+=~$(git log -1 --date=format-local:%Y%m%d%H%M --format=%cd.%h --abbrev=8)
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ $1 == rpm ]]; then
  git archive --format=tar.gz --prefix="evb-$version/" -o "$work/evb-$version.tar.gz" HEAD
  # Debian's rpm does not know what is installed.
  nodeps=()
  ! command -v dpkg-query >/dev/null || nodeps=(--nodeps)
  rpmbuild -bb "${nodeps[@]}" --define "evb_version $version" --define "_topdir $work/rpm" --define "_sourcedir $work" evb.spec \
    >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; exit 1; }
  mv "$work"/rpm/RPMS/*/*.rpm "$folder"
  ls "$folder"/*-"$version"-*.rpm
  exit
fi
mkdir "$work/evb"
git archive HEAD | tar -x -C "$work/evb"
cat >"$work/evb/debian/changelog" <<END
evb ($version) unstable; urgency=medium

  * CHANGELOG.md describes what changed.

 -- $(sed -n 's/^Maintainer: //p' debian/control)  $(date -R -d "@$SOURCE_DATE_EPOCH")
END
(cd "$work/evb" && dpkg-buildpackage --build=binary --no-sign) >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; exit 1; }
mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$folder"
ls "$folder"/*_"$version"_*.deb
