#!/bin/bash
# Shows the relay on three hosts: the home of a store, a broker, and another machine that follows it. The hosts are network
# namespaces of this machine, with links between them that delay each packet by 10 ms. Ends by itself, and leaves nothing.
# usage: Samples/Relay/three-hosts.sh [DIRECTORY_OF_THE_PROGRAMS]     (as root; needs iproute2, nats-server, openssl, sqlite3)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
programs=$(cd "${1:-$here/../../.build/debug}" && pwd)
PATH=$PATH:/usr/sbin:/sbin
for tool in ip nats-server openssl sqlite3; do
    command -v "$tool" >/dev/null || { echo "three-hosts: $tool is missing" >&2; exit 69; }
done
[ "$(id -u)" -eq 0 ] || { echo "three-hosts: run it as root: it creates network namespaces" >&2; exit 77; }

tag=gs$$
directory=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    for host in home broker other; do ip netns del "$tag-$host" 2>/dev/null || true; done
    rm -rf "$directory"
}
trap finish EXIT
on() {
    local host=$1
    shift
    ip netns exec "$tag-$host" env XDG_RUNTIME_DIR="$directory/$host" XDG_CACHE_HOME="$directory/$host" \
        GROUPSTORE_SOCKET=/nonexistent/agent.sock "$@"
}
# Runs a program on a host until the end. Unlike that of a function in the background, the process is the program's own.
start() {
    local host=$1
    shift
    ip netns exec "$tag-$host" env XDG_RUNTIME_DIR="$directory/$host" XDG_CACHE_HOME="$directory/$host" \
        GROUPSTORE_SOCKET=/nonexistent/agent.sock "$@" &
    pids+=($!)
}
# Waits until a line of a file has a text.
await() {
    local deadline=$((SECONDS + 60))
    until grep -qF -- "$2" "$1" 2>/dev/null; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "three-hosts: no \"$2\" in $1:" >&2; tail -n 20 "$1" >&2; exit 1; }
        sleep 0.1
    done
}
# Waits for programs that open, write and close the store at the same moment, as every writer should.
sqlite3() { command sqlite3 -cmd ".timeout 10000" "$@"; }
# Prints the token of a store's last change.
token() {
    sqlite3 "$1" "SELECT 'h1.' || identifier || '.' || number || '.' || printf('%x', nonce)
                  FROM GS_HISTORY, GS_CHANGE ORDER BY number DESC LIMIT 1"
}

echo "-- Three hosts: home 10.77.1.1, broker 10.77.1.2 and 10.77.2.2, other 10.77.2.1"
for host in home broker other; do
    ip netns add "$tag-$host"
    ip -n "$tag-$host" link set lo up
    mkdir -m 700 "$directory/$host"
done
network=1
for host in home other; do
    ip -n "$tag-$host" link add eth0 type veth peer name "$host" netns "$tag-broker"
    ip -n "$tag-$host" addr add "10.77.$network.1/24" dev eth0
    ip -n "$tag-broker" addr add "10.77.$network.2/24" dev "$host"
    ip -n "$tag-$host" link set eth0 up
    ip -n "$tag-broker" link set "$host" up
    ip netns exec "$tag-$host" tc qdisc add dev eth0 root netem delay 10ms 2>/dev/null ||
        echo "   (no netem here: the links have no delay)"
    network=$((network + 1))
done

echo "-- A broker with TLS, and a user for each side"
cd "$directory/broker"
{
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.pem -subj "/CN=relay sample"
    openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=broker
    echo "subjectAltName=DNS:broker,IP:10.77.1.2,IP:10.77.2.2" >extensions
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem -extfile extensions
} >/dev/null 2>&1
export HOME_PASSWORD FOLLOWER_PASSWORD
HOME_PASSWORD=p$(openssl rand -hex 16)
FOLLOWER_PASSWORD=p$(openssl rand -hex 16)
ip netns exec "$tag-broker" nats-server -c "$here/nats-server.conf" >"$directory/broker.log" 2>&1 &
pids+=($!)
await "$directory/broker.log" "Server is ready"
cd "$directory"
umask 077
echo "home:$HOME_PASSWORD" >home.creds
echo "follower:$FOLLOWER_PASSWORD" >follower.creds
openssl rand -hex 32 >relay.key

echo "-- The home: a store with a history, published"
store=$directory/home/Notes.sqlite
sqlite3 "$store" "PRAGMA journal_mode = WAL; CREATE TABLE Note (id INTEGER PRIMARY KEY, title TEXT);
                  INSERT INTO Note (title) VALUES ('written before the relay');" >/dev/null
"$programs/groupstore" history enable --quiet "$store"
common=(--stream Notes --tls-ca "$directory/broker/ca.pem" --key "$directory/relay.key")
start home "$programs/groupstore-relay" publish "$store" --server tls://10.77.1.2 --creds home.creds "${common[@]}" \
    2>"$directory/home.log"

echo "-- The other machine: a replica"
mkdir "$directory/other/notes"
replica=$directory/other/notes/Notes.sqlite
start other "$programs/groupstore-relay" follow "$directory/other/notes" --follower other --server tls://10.77.2.2 \
    --creds follower.creds "${common[@]}" --json >"$directory/follow.json" 2>"$directory/other.log"
await "$directory/follow.json" '"type":"caught_up"'
start other "$programs/groupstore" watch "$replica" --rows --json >"$directory/watch.txt" 2>"$directory/watch.log"
await "$directory/watch.txt" '"type":"watching"'

echo "-- A commit at home, heard on the other machine with its row:"
sqlite3 "$store" "INSERT INTO Note (title) VALUES ('written at home')"
await "$directory/watch.txt" '"type":"change"'
grep '"type":"change"' "$directory/watch.txt"
sqlite3 "$replica" "SELECT '   ' || id || '  ' || title FROM Note"

echo "-- The link to the other machine is cut, and 100 rows are written at home"
ip -n "$tag-broker" link set other down
for number in $(seq 100); do sqlite3 "$store" "INSERT INTO Note (title) VALUES ('while the link was cut $number')"; done
echo "   rows at home: $(sqlite3 "$store" "SELECT count(*) FROM Note")," \
    "on the other machine: $(sqlite3 "$replica" "SELECT count(*) FROM Note")"

echo "-- The link is back"
ip -n "$tag-broker" link set other up
await "$directory/follow.json" "\"type\":\"caught_up\",\"upto\":\"$(token "$store")\""
on other "$programs/groupstore-relay" status
content="SELECT * FROM Note ORDER BY id; SELECT number, nonce, key FROM GS_CHANGE ORDER BY number"
if [ "$(sqlite3 "$store" "$content")" != "$(sqlite3 "$replica" "$content")" ]; then
    echo "three-hosts: home and replica differ" >&2
    exit 1
fi
echo "-- Both have the same $(sqlite3 "$replica" "SELECT count(*) FROM Note") rows, and the same history"
