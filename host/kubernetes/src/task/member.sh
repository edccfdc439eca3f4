# Starts a member of a kvstore that may have several members. KVSTORE_START says how:
#
#   new     as the first member of a new cluster
#   return  as the voting member that it was, with the data that it has
#   join    as a further member: first as a learner, which counts for no quorum, and as a voting
#           member when it has caught up
#
# etcd reads its own settings from the variables ETCD_*. KVSTORE_SELF has its own client URL, and
# KVSTORE_OTHERS those of the other members. It needs only `etcd`, `etcdctl` and the functions of
# `data.sh`, which precede it: some images have no other programs.
export ETCDCTL_API=3 PATH="$PATH:/usr/local/bin"
self=$KVSTORE_SELF
others=$KVSTORE_OTHERS
peer_url=$ETCD_INITIAL_ADVERTISE_PEER_URLS
base=$ETCD_DATA_DIR
find_data "$base"

# Waits for a second: without `sleep` as long as a request to an address at which nothing listens.
pause() {
    if command -v sleep >/dev/null; then
        sleep 1
    else
        etcdctl --endpoints=http://127.0.0.1:0 --command-timeout=1s get pause >/dev/null 2>&1
    fi
}

# Tells the other members the address of this one, which may have changed. It needs the quorum.
announce() {
    while kill -0 $$ 2>/dev/null; do
        pause
        status=$(etcdctl --endpoints="$self" endpoint status 2>/dev/null) || continue
        id=${status#*, }
        etcdctl --endpoints="$self" member update "${id%%,*}" --peer-urls="$peer_url" >/dev/null 2>&1 && return
    done
}

# Makes this member vote as soon as it has caught up.
promote() {
    while kill -0 $$ 2>/dev/null; do
        case $(etcdctl --endpoints="$others" member promote "$1" 2>&1) in
        *promoted*) return ;;
        *"in sync with leader"*) ;;
        *"can only promote a learner"* | *"member not found"*) return ;;
        esac
        pause
    done
}

# Removes a former member of this name, and learners: only one member joins at a time, so they are
# left from attempts that failed. Then adds this one.
add() {
    members=$(etcdctl --endpoints="$others" member list 2>/dev/null) || return 1
    while IFS=', ' read -r id state name peers clients learner; do
        if [ "$name" = "$ETCD_NAME" ] || [ "$learner" = true ]; then
            etcdctl --endpoints="$others" member remove "$id" || return 1
        fi
    done <<LIST
$members
LIST
    added=$(etcdctl --endpoints="$others" member add "$ETCD_NAME" --learner --peer-urls="$peer_url") || return 1
}

case $KVSTORE_START in
new)
    [ -d "$folder/member/wal" ] && announce &
    export ETCD_INITIAL_CLUSTER="$ETCD_NAME=$peer_url" ETCD_INITIAL_CLUSTER_STATE=new
    ;;
return)
    if ! [ -d "$folder/member/wal" ]; then
        echo "no data in $folder: this member must not return without them" >&2
        exit 1
    fi
    announce &
    export ETCD_INITIAL_CLUSTER="$ETCD_NAME=$peer_url" ETCD_INITIAL_CLUSTER_STATE=existing
    ;;
join)
    until add; do pause; done
    # Data of a former member are of no use: the cluster sends its own.
    if command -v rm >/dev/null; then
        rm -rf "$base/member" "$base"/data-* "$base/current" || exit 1
        folder=$base
    elif [ -e "$folder/member" ]; then
        find_unused "$base"
        select_data "$base" "$unused" || exit 1
        drop_other_data "$base" "$unused" "$unused"
        folder=$base/$unused
    fi
    while read -r line; do
        case $line in
        # A short id comes after several blanks.
        Member*) set -- $line && id=$2 ;;
        ETCD_INITIAL_CLUSTER=*) line=${line#*\"} ETCD_INITIAL_CLUSTER=${line%\"} ;;
        esac
    done <<ADDED
$added
ADDED
    export ETCD_INITIAL_CLUSTER ETCD_INITIAL_CLUSTER_STATE=existing
    promote "$id" &
    ;;
*)
    echo "KVSTORE_START is '$KVSTORE_START'; expected new, return or join" >&2
    exit 1
    ;;
esac
export ETCD_DATA_DIR="$folder"
exec etcd
