import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `groupstore rescue` on a file system without space or inodes.
@Suite(.ownThreads, .enabled(if: Namespaces.areAvailable, "needs unshare(1) and the right to make user namespaces"))
struct FullRescueTests {
    /// A program keeps a row in a lost log, `$1` is made scarce, and then there is enough of it again.
    private static let script = """
        set -e
        mount -t tmpfs -o size=8m,nr_inodes=60 tmpfs "$2"
        cat >"$2/program.py" <<'END'
        import os, sqlite3, sys
        def run(sql, name="Notes.sqlite"):
            c = sqlite3.connect(sys.argv[1] + "/" + name, isolation_level=None)
            for statement in sql: c.execute(statement)
            return c
        run(["PRAGMA journal_mode = WAL", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)",
            "INSERT INTO t VALUES (1, randomblob(400000))"]).close()
        c = run(["SELECT * FROM t", "INSERT INTO t VALUES (2, 'lost')"])
        for suffix in ["-wal", "-shm"]: os.unlink(sys.argv[1] + "/Notes.sqlite" + suffix)
        print("ready", flush=True)
        sys.stdin.readline()
        END
        mkfifo "$2/in" "$2/out"
        python3 "$2/program.py" "$2" <"$2/in" >"$2/out" & exec 3>"$2/in"
        read line <"$2/out"
        # Within one process, SQLite's connections share the lost log.
        python3 -c 'import sqlite3, sys
        sqlite3.connect(sys.argv[1], isolation_level=None).execute("INSERT INTO t VALUES (3, 0)")' "$2/Notes.sqlite"
        free=$(stat -f -c %d "$2"); blocks=$(stat -f -c %f "$2")
        if [ "$1" = inodes ]; then
            for n in $(seq $((free - $3))); do : >"$2/fill$n"; done
        else
            dd if=/dev/zero of="$2/fill" bs=4096 count=$((blocks - $3)) 2>/dev/null
        fi
        count() { python3 -c 'import sqlite3, sys
        print("rows", [r[0] for r in sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True).execute(
            "SELECT id FROM t ORDER BY id")])' "$2/Notes.sqlite"; }
        "$4" rescue "$2/Notes.sqlite" --deadline 5s >&2 2>"$2.errors" && echo "status 0" || echo "status $?"
        echo "errors $(grep ^groupstore: "$2.errors")"
        count "$@"
        rm -f "$2"/fill*; [ "$1" = inodes ] && mount -o remount,nr_inodes=900 "$2" || mount -o remount,size=90m "$2"
        "$4" rescue "$2/Notes.sqlite" --deadline 60s >&2 && echo "again 0" || echo "again $?"
        count "$@"
        echo >&3
        """

    /// Arguments: what is scarce, and how much of it is left, in inodes or blocks of 4 KiB.
    @Test(arguments: [
        ("inodes", 0), ("inodes", 6), ("inodes", 8), ("inodes", 16), ("inodes", 20), ("blocks", 0), ("blocks", 130),
        ("blocks", 300), ("blocks", 500),
    ])
    func changesNothingAndSucceedsOnceThereIsEnough(_ kind: String, _ left: Int) throws {
        let scratch = try TemporaryDirectory()
        let place = scratch.path.appending("small")
        try run("mkdir", [Word(place)])
        let done = try run(
            "unshare",
            ["--user", "--map-root-user", "--mount", "sh", "-c", Word(Self.script), "sh", Word(kind), Word(place)]
                + ["\(left)", Programs.groupstore])
        let lines = done.output.split(separator: "\n").map(String.init)
        #expect(lines.first == "status 74", "\(done.output)\(done.errors)")
        let errors = lines.first { $0.hasPrefix("errors ") } ?? ""
        #expect(errors.contains("No space left on device") || errors.contains("disk is full"), "\(errors)")
        #expect(errors.contains("df -i") && !errors.contains("/proc/self"), "\(errors)")
        #expect(errors.contains("python3 (pid "), "\(errors)")
        #expect(lines.filter { !$0.hasPrefix("errors ") }.dropFirst() == ["rows [1, 3]", "again 0", "rows [1, 2, 3]"])
    }
}
