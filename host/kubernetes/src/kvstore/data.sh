# Functions for etcd's data in the folder $1. They need no program, because some images have none but
# etcd's.

# Sets $folder to the folder with the data: $1, or the subfolder that the last complete line of the
# file `current` names. Only images without `rm` and `mv` need such subfolders.
find_data() {
    folder=$1
    while IFS= read -r line; do [ -z "$line" ] || folder=$1/$line; done 2>/dev/null <"$1/current"
}
# Sets $unused to the name of a subfolder that does not exist.
find_unused() {
    unused=1
    while [ -e "$1/data-$unused" ]; do unused=$((unused + 1)); done
    unused=data-$unused
}
# Makes the subfolder $2 the one with the data. A line that a crash has cut does not count.
select_data() { printf '\n%s\n' "$2" >>"$1/current"; }
# Removes all data but those in the folders $2 and $3, or, without `rm`, the content of their files.
drop_other_data() {
    for other in "$1/." "$1"/data-*; do
        case $other in "$1/$2" | "$1/$3") continue ;; esac
        if command -v rm >/dev/null; then
            rm -rf "$other/member"
            continue
        fi
        for file in "$other"/member/wal/* "$other"/member/snap/*; do
            [ ! -f "$file" ] || printf '' >"$file"
        done
    done
}
