#!/bin/sh
# Builds the control plane of Kubernetes $1 from Debian's source package, in the current folder,
# which must be empty. The programs are in `out` afterwards. Nothing is installed, and the package
# lists are private: the machine's own usually have no source packages.
set -eu
version=$1
here=$(pwd)

say() { echo "    kubernetes $version: $*" >&2; }

mkdir -p sources lists/partial archives/partial debs tools out gopath/src/k8s.io
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    name=$(basename "$file")
    [ -f "$file" ] || continue
    case $name in
    # The one-line format needs another line for sources, the deb822 format another type in the same
    # field.
    *.list) sed -n 's/^[[:space:]]*deb[[:space:]]\(.*\)/deb \1\ndeb-src \1/p' "$file" >"sources/$name" ;;
    *.sources) sed 's/^Types:.*/Types: deb deb-src/' "$file" >"sources/$name" ;;
    esac
done
apt() {
    program=$1
    shift
    "$program" -o APT::Sandbox::User= -o Debug::NoLocking=1 -o Dir::Etc::SourceList=/dev/null \
        -o "Dir::Etc::SourceParts=$here/sources" -o "Dir::State::Lists=$here/lists" \
        -o "Dir::Cache=$here/archives" "$@"
}

say "reading package lists"
# Repositories without source packages cause errors here; missing files are detected below.
apt apt-get update -qq >update.log 2>&1 || true
say "downloading the sources and Debian's Go"
if ! apt apt-get source -qq --download-only kubernetes >source.log 2>&1; then
    cat update.log source.log >&2
    exit 1
fi
description=$(ls kubernetes_*.dsc)
case $description in
*"$version"*) ;;
*)
    echo "the source package is $description, not $version" >&2
    exit 1
    ;;
esac
(cd debs && apt apt-get download -qq golang-1.19-go golang-1.19-src)
for package in debs/*.deb; do dpkg-deb -x "$package" tools; done
dpkg-source --no-check --skip-patches -x "$description" gopath/src/k8s.io/kubernetes >unpack.log 2>&1

export GOROOT="$here/tools/usr/lib/go-1.19" GO111MODULE=off GOPATH="$here/gopath" \
    GOCACHE="$here/gocache" CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-p=2
go=$GOROOT/bin/go
cd gopath/src/k8s.io/kubernetes

say "generating the description of the API"
"$go" build -o "$here/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
folders=$(grep -rl --include=*.go '+k8s:openapi-gen=' staging/src/k8s.io/*/ pkg cmd vendor/k8s.io |
    grep -v -e _test.go -e /testdata/ | xargs -n1 dirname | sort -u |
    sed 's#^staging/src/#k8s.io/kubernetes/vendor/#; s#^\(pkg\|cmd\|vendor\)/#k8s.io/kubernetes/\1/#' |
    sort -u | paste -sd,)
"$here/openapi-gen" --logtostderr --go-header-file hack/boilerplate/boilerplate.generatego.txt \
    -O zz_generated.openapi -p k8s.io/kubernetes/pkg/generated/openapi -i "$folders" -r "$here/report" \
    >"$here/openapi.log" 2>&1 || { tail -20 "$here/openapi.log" >&2; exit 1; }

flags="-s -w"
for package in component-base/version client-go/pkg/version; do
    for path in k8s.io/$package k8s.io/kubernetes/vendor/k8s.io/$package; do
        flags="$flags -X $path.gitVersion=v$version -X $path.gitMajor=${version%%.*} -X $path.gitMinor=20"
    done
done
for program in kube-apiserver kube-controller-manager kube-scheduler; do
    say "building $program"
    "$go" build -trimpath -ldflags "$flags" -o "$here/out/" "k8s.io/kubernetes/cmd/$program"
done
