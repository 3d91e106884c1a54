import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// Runs programs as a container does: in mount, PID and user namespaces of their own, over a root directory of their
/// own in which some places are mounts and the rest is this machine's.
struct ContainerSandbox {
    enum Mount {
        /// A directory with nothing in it, over what is there.
        case empty(FilePath)
        case bind(FilePath, at: FilePath, readOnly: Bool = false)
    }

    /// Containers without the right to make namespaces are common, on continuous integration above all.
    static let isSupported: Bool = {
        guard let place = try? TemporaryDirectory() else { return false }
        let sandbox = ContainerSandbox(root: place.path, mounts: [], environment: [:])
        return (try? sandbox.start("true", []).wait())?.status == 0
    }()

    /// Where the root directory is put together, in the sandbox's namespace only.
    let root: FilePath
    let mounts: [Mount]
    /// All that the programs get, but for `PATH`.
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

    /// The program is its PID namespace's first process, and ends with the process that is returned.
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

    /// The program's process as this machine numbers it; `process` came from `start`, which waits for that one.
    static func programPID(_ process: RunningProcess) throws -> pid_t {
        let children = try TestSupport.run("cat", [Word("/proc/\(process.pid)/task/\(process.pid)/children")]).output
        guard let pid = children.split(separator: " ").first.flatMap({ pid_t($0) }) else {
            throw Unexpected("the sandbox has no program: \(children)")
        }
        return pid
    }
}
