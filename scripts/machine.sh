# A virtual machine with Debian's kernel, as a directory that becomes its initial file system; to be sourced by bash.
#
# GUEST_KERNEL, GUEST_MODULES   a kernel image and its directory of modules, instead of Debian's

place=${TARGET:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/target}/guest
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$place"

# Unpacks Debian packages into the directory $1, all or nothing.
unpack_packages() {
    local new=$1.new
    echo "guest: unpacking ${*:2}" >&2
    rm -rf "$new"
    mkdir -p "$new/packages"
    (cd "$new/packages" && apt-get download -qq "${@:2}" 2>/dev/null) ||
        { echo "guest: apt cannot download ${*:2}; run apt-get update, and if that does not help rm -r $place" >&2; exit 1; }
    for package in "$new"/packages/*.deb; do dpkg -x "$package" "$new"; done
    rm -r "$new/packages"
    mv "$new" "$1"
}

# Debian's kernel: 6.12 where the archive has it, otherwise the newest.
unpack_kernel() {
    local package
    package=$(apt-cache search --names-only '^linux-image-[0-9.]+(\+deb[0-9]+)?(-[0-9]+)?-amd64$' |
        awk '{print $1}' | sort -V | awk '/-6\.12\./ { twelve = $1 } { last = $1 } END { print twelve ? twelve : last }')
    [ -n "$package" ] || { echo "guest: apt knows no kernel; run apt-get update, or set GUEST_KERNEL" >&2; exit 1; }
    unpack_packages "$place/kernel" "$package"
}

# Leaves the kernel in $image, its modules in $modules, and its name in $version.
find_kernel() {
    if [ -n "${GUEST_KERNEL:-}" ]; then
        image=$GUEST_KERNEL modules=$GUEST_MODULES
    else
        [ -d "$place/kernel" ] || unpack_kernel
        image=$(find "$place/kernel/boot" -name 'vmlinuz-*')
        modules=$(find "$place/kernel" -path '*/lib/modules/*' -prune -type d)
    fi
    version=$(basename "$modules")
}

# Makes the root directory $1 with a shell and what it calls.
make_root() {
    local applet
    root=$1
    mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc,run,mnt,tests}
    cp "$(command -v busybox)" "$root/bin/busybox"
    for applet in $("$root/bin/busybox" --list); do
        [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
    done
}

# Copies a program under a name, and the libraries it needs.
add_program() {
    local library
    rm -f "$root/bin/$2"
    install -D "$1" "$root/bin/$2"
    for library in $(ldd "$1" 2>/dev/null | grep -oE '/[^ ]+' || true); do
        install -D "$library" "$root$library"
    done
}

# The program under test, without what only debuggers read.
add_forebay() {
    strip -o "$root.forebay" "$1" 2>/dev/null || cp "$1" "$root.forebay"
    add_program "$root.forebay" forebay
    rm "$root.forebay"
}

# Copies the kernel's modules of these names, and those they need.
add_modules() {
    local file target=$root/lib/modules/$version
    mkdir -p "$target"
    cp "$modules"/modules.{builtin,builtin.modinfo,order} "$target/"
    [ -e "$modules/modules.devname" ] || depmod -b "${modules%/lib/modules/*}" "$version" 2>/dev/null || true
    for driver in "$@"; do
        modprobe -d "${modules%/lib/modules/*}" -S "$version" --show-depends "$driver" 2>/dev/null |
            awk '$1 == "insmod" { print $2 }' || true
    done | sort -u | while read -r file; do
        local name=${file#"$modules"/}
        mkdir -p "$target/$(dirname "$name")"
        case $file in
            *.xz) xz -dc "$file" >"$target/${name%.xz}" ;;
            *.zst) zstd -dcq "$file" >"$target/${name%.zst}" ;;
            *) cp "$file" "$target/$name" ;;
        esac
    done
    depmod -b "$root" "$version"
}

# Writes the root directory into file $1.
pack_root() { (cd "$root" && find . | cpio -o -H newc --quiet) >"$1"; }

# Makes the directory $1 the root of a Debian system with the packages $3... and what they need. They are downloaded once,
# into the directory $2; none of their scripts is run.
debian_root() {
    local root=$1 packages=$2 names package kind directory options=(-o "Dir::State::status=$2.new/nothing")
    shift 2
    if [ ! -d "$packages" ]; then
        echo "guest: downloading the packages of a Debian system" >&2
        rm -rf "$packages.new"
        mkdir "$packages.new"
        : >"$packages.new/nothing"
        # What apt would install where nothing is.
        names=$(apt-get "${options[@]}" -s install --no-install-recommends "$@" | awk '/^Inst/ { print $2 }')
        # shellcheck disable=SC2086 # names of packages
        (cd "$packages.new" && apt-get "${options[@]}" -qq download $names)
        mv "$packages.new" "$packages"
    fi
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
    for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$root/$directory"; done
    for package in "$packages"/*.deb; do
        dpkg-deb --fsys-tarfile "$package" |
            tar -x -C "$root" --keep-directory-symlink --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*'
    done
    # What scripts of packages do.
    for kind in passwd group; do cp "$root/usr/share/base-passwd/$kind.master" "$root/etc/$kind"; done
    ln -sf dash "$root/usr/bin/sh"
    mkdir -p "$root"/{dev,proc,sys,run,usr/lib/modules}
}
