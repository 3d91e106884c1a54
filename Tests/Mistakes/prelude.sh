# Functions for the lines of mistakes.txt. $D is the mistake's own directory; the lines run in $D/work.
G=group.com.example.notes
app_groups=$HOME/.local/share/app-groups

# Makes a store with rows.
store() { sqlite3 "$1" "CREATE TABLE note (id INTEGER PRIMARY KEY, text); INSERT INTO note (text) VALUES ('${2:-here}'), ('b')"; }

# Makes a store in write-ahead mode.
wal_store() { sqlite3 "$1" "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, text); INSERT INTO note (text) VALUES ('here')" >/dev/null; }

# Overwrites pages of a store, so that SQLite finds it damaged.
damage() { python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(100); f.write(b"\xff" * 60)' "$1"; }

# Fills a file with what looks like an encrypted database.
encrypted() { python3 -c 'import sys, hashlib; open(sys.argv[1], "wb").write(b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(256)))' "$1"; }

# Has another program open a store, until `release`.
hold() {
    exec 8< <(exec python3 -c '
import signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2]).fetchall()
print("open", flush=True)
signal.pause()' "$1" "${2:-SELECT count(*) FROM sqlite_master}")
    echo $! >>"$D/pids"
    read -r _ <&8
}

# Ends the programs that `hold` and `agent` started.
release() {
    while read -r pid; do
        kill "$pid" 2>/dev/null
        while kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
    done <"$D/pids"
    rm "$D/pids"
}

# Starts an agent, and waits for its socket.
agent() {
    groupstore agent "$@" >/dev/null 2>"$D/agent.log" </dev/null &
    echo $! >>"$D/pids"
    until [ -S "${GROUPSTORE_SOCKET}" ]; do kill -0 $! || return 1; sleep 0.01; done
}

# Mounts a small file system, or a read-only one.
small() { mkdir -p "$1" && mount -t tmpfs -o size="$2" none "$1" && echo "$PWD/$1" >>"$D/mounts"; }

unmount_all() { [ ! -e "$D/mounts" ] || while read -r place; do umount -l "$place"; done <"$D/mounts"; }

# Runs a command as a user without rights.
nobody() {
    chmod 755 "$D" "$D/bin" "$D/work"
    setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
}
export -f unmount_all
