import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// A sandbox that runs programs as a container does, in their own mount, PID and user namespaces. Some places in its
/// root directory are mounts; the rest is this machine's.
struct ContainerSandbox {
    enum Mount {
        /// An empty directory that hides the existing one.
        case empty(FilePath)
        case bind(FilePath, at: FilePath, readOnly: Bool = false)
    }

    /// True if this process may create namespaces. Many containers, above all in continuous integration, lack that
    /// right.
    static let isSupported: Bool = {
        guard let place = try? TemporaryDirectory() else { return false }
        let sandbox = ContainerSandbox(root: place.path, mounts: [], environment: [:])
        return (try? sandbox.start("true", []).wait())?.status == 0
    }()

    /// The mount point of the root directory, which exists in the sandbox's namespace only.
    let root: FilePath
    let mounts: [Mount]
    /// The programs' whole environment, except `PATH`.
    let environment: [String: String]

    private static let script = """
        root=$1
        shift
        mount -t tmpfs none "$root"
        for place in /*; do
            if [ -L "$place" ]; then
                cp -P "$place" "$root/"
            elif [ -d "$place" ]; then
                mkdir "$root$place"
                [ "$place" = /proc ] || mount --rbind "$place" "$root$place"
            fi
        done
        mount -t proc proc "$root/proc"
        while [ "$1" != -- ]; do
            case $1 in
            empty)
                mkdir -p "$root$2"
                mount -t tmpfs none "$root$2"
                ;;
            *)
                if [ -d "$3" ]; then mkdir -p "$root$2"; else mkdir -p "$root${2%/*}"; : >"$root$2"; fi
                mount --bind "$3" "$root$2"
                [ "$1" = bind ] || mount -o remount,bind,ro "$root$2"
                ;;
            esac
            if [ "$1" = empty ]; then shift 2; else shift 3; fi
        done
        shift
        # As with `cap_drop: [ALL]`: what runs inside has no right but its user's.
        exec chroot "$root" setpriv --bounding-set=-all --inh-caps=-all --no-new-privs env -i "PATH=$PATH" "$@"
        """

    /// Starts a program as the first process of its PID namespace. It ends with the returned process.
    func start(_ program: Word, _ arguments: [Word]) throws -> RunningProcess {
        let mounts = mounts.flatMap { mount -> [Word] in
            switch mount {
            case .empty(let place): ["empty", Word(place)]
            case .bind(let source, let place, let readOnly):
                [readOnly ? "read-only" : "bind", Word(place), Word(source)]
            }
        }
        return try RunningProcess(
            "unshare",
            [
                "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child",
                "sh", "-euc", Word(Self.script), "sandbox", Word(root),
            ] + mounts + ["--"] + environment.map { Word("\($0.key)=\($0.value)") } + [program] + arguments)
    }

    func run(_ program: Word, _ arguments: [Word]) throws -> FinishedProcess {
        let process = try start(program, arguments)
        process.closeInput()
        return try process.wait()
    }

    /// Returns the program's PID on this machine. `process` comes from `start` and waits for the program.
    static func programPID(_ process: RunningProcess) throws -> pid_t {
        let children = try TestSupport.run("cat", [Word("/proc/\(process.pid)/task/\(process.pid)/children")]).output
        guard let pid = children.split(separator: " ").first.flatMap({ pid_t($0) }) else {
            throw Unexpected("the sandbox has no program: \(children)")
        }
        return pid
    }
}
