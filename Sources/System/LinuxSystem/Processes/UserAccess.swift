import CLinux
import Glibc
import SystemPackage

extension PeerCredentials {
    /// Returns what a process of the user has if the user logs in, and further groups.
    package static func user(_ uid: uid_t, also further: [gid_t] = []) -> PeerCredentials {
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        var names = [CChar](repeating: 0, count: 16_384)
        guard getpwuid_r(uid, &entry, &names, names.count, &found) == 0, found != nil, let name = entry.pw_name else {
            return PeerCredentials(pid: 0, uid: uid, gid: further.first ?? gid_t.max - 1, groups: further)
        }
        var count: CInt = 1024
        var groups = [gid_t](repeating: 0, count: Int(count))
        if getgrouplist(name, entry.pw_gid, &groups, &count) < 0 { count = 0 }
        return PeerCredentials(
            pid: 0, uid: uid, gid: entry.pw_gid, groups: Array(groups.prefix(Int(max(0, count)))) + further)
    }

    /// Returns a user's name; nil if the system doesn't know the user.
    package static func name(ofUser uid: uid_t) -> String? {
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        var names = [CChar](repeating: 0, count: 16_384)
        guard getpwuid_r(uid, &entry, &names, names.count, &found) == 0, found != nil else { return nil }
        return entry.pw_name.map { String(cString: $0) }
    }
}

/// Checks another user's access to a file by that user's permissions, not by this process's.
///
/// Root asks the kernel in a child process that becomes that user. A process without root privileges can't do that. It
/// evaluates the mode and ACL of each directory on the way and of the file (`AccessControlList`). If those can't be
/// read, access is denied.
package struct UserAccess: Sendable {
    package enum Answer: Sendable, Equatable {
        /// The user has access to this file.
        case granted(FileIdentity)
        /// There is no such file, and the user could find that out.
        case absent
        /// The user has no access, and must not learn whether the file exists.
        case denied
    }

    /// A path and the requested access: `R_OK`, `W_OK`, `X_OK` of access(2).
    package struct Question: Sendable {
        package let path: FilePath
        package let mode: CInt

        package init(_ path: FilePath, _ mode: CInt) {
            self.path = path
            self.mode = mode
        }
    }

    private let user: PeerCredentials
    private let asksKernel: Bool

    /// Creates a check. Only root can set `asksKernel`.
    package init(_ user: PeerCredentials, asksKernel: Bool = geteuid() == 0) {
        self.user = user
        self.asksKernel = asksKernel
    }

    package func answer(_ path: FilePath, _ mode: CInt) -> Answer {
        answers([Question(path, mode)]).first ?? .denied
    }

    /// Returns one answer per question, in order. Symbolic links are followed.
    package func answers(_ questions: [Question]) -> [Answer] {
        guard !questions.isEmpty else { return [] }
        // Root has access to everything.
        if user.uid == 0 { return questions.map { Self.rootAnswer($0.path) } }
        return asksKernel ? kernelAnswers(questions) : questions.map(computedAnswer)
    }

    /// The limit in milliseconds. The user chooses the path, which may lead into a file system that never answers.
    private static let timeout: CInt = 2000

    private static func rootAnswer(_ path: FilePath) -> Answer {
        FileStatus(following: path).map { .granted($0.identity) } ?? (errno == ENOENT ? .absent : .denied)
    }

    private func kernelAnswers(_ questions: [Question]) -> [Answer] {
        let paths = questions.map { question in question.path.withPlatformString { strdup($0) } }
        defer { for path in paths { free(path) } }
        var queries = zip(paths, questions).map { path, question in
            gs_access_question(path: UnsafePointer(path), mode: question.mode, error: EACCES, device: 0, inode: 0)
        }
        let groups = CInt(user.groups.count)
        guard gs_access_as(user.uid, user.gid, user.groups, groups, &queries, CInt(queries.count), Self.timeout) == 0
        else {
            // A file system that doesn't answer would block this process too.
            return errno == ETIMEDOUT ? questions.map { _ in .denied } : questions.map(computedAnswer)
        }
        return queries.map { query in
            switch query.error {
            case 0: .granted(FileIdentity(device: query.device, inode: query.inode))
            case ENOENT: .absent
            default: .denied
            }
        }
    }

    /// True if the user may make and remove files in the directory, wherever it is reached.
    package func mayWrite(to directory: Directory) -> Bool {
        guard let descriptor = try? directory.open(".", flags: O_RDONLY | O_DIRECTORY),
            let status = try? descriptor.status(), let list = try? AccessControlList(of: descriptor, status)
        else { return false }
        return user.uid == 0 || list.allows(user, to: R_OK | W_OK | X_OK)
    }

    /// Returns the first directory on the way to a path that the user can't pass, or nil if there is none. The path is
    /// absolute and contains no links.
    package func firstClosed(above path: FilePath) -> FilePath? {
        var places = [FilePath("/")]
        for name in path.removingLastComponent().components {
            places.append((places.last ?? "/").appending(name))
        }
        let answers = answers(places.map { Question($0, X_OK) })
        return zip(places, answers).first { $0.1 == .denied }?.0
    }

    /// Returns the remedy that gives a user rights to a file, such as `rwx`. The owner's are those of the mode, which
    /// no other entry of the file's access control list adds to; anybody else gets an entry (acl(5)).
    package static func remedy(granting rights: String, to path: FilePath, for user: uid_t) -> String {
        FileStatus(following: path)?.owner == user
            ? "allow it: chmod u+\(rights) \(path.shellWord)"
            : "allow it (package acl): setfacl -m u:\(user):\(rights) \(path.shellWord)"
    }

    /// Evaluates each component by descriptor, so that a check and its use can't see different files.
    private func computedAnswer(_ question: Question) -> Answer {
        do throws(SystemError) {
            var path = question.path
            for _ in 0..<40 {
                switch try resolve(path) {
                case .file(let found, let status):
                    let isAllowed = try AccessControlList(of: found, status).allows(user, to: question.mode)
                    return isAllowed ? .granted(status.identity) : .denied
                case .link(let target): path = target
                case .absent: return .absent
                case .closed: return .denied
                }
            }
        } catch {}
        return .denied
    }

    private enum Resolution: ~Copyable {
        case file(Descriptor, FileStatus)
        case link(FilePath)
        case absent
        case closed
    }

    private func resolve(_ path: FilePath) throws(SystemError) -> Resolution {
        var current = try Descriptor(opening: "/", flags: O_RDONLY | O_DIRECTORY)
        var status = try current.status()
        var parent = FilePath("/")
        var remaining = Array(path.components)
        while !remaining.isEmpty {
            guard status.kind == .directory, try AccessControlList(of: current, status).allows(user, to: X_OK) else {
                return .closed
            }
            let name = remaining.removeFirst()
            let next: Descriptor
            do throws(SystemError) {
                let directory = current.raw
                next = Descriptor(
                    owning: try retrying("open", path: path) {
                        name.withPlatformString { gs_openat(directory, $0, gs_o_path | O_NOFOLLOW, 0) }
                    })
            } catch {
                if error.errno == .noSuchFileOrDirectory { return .absent }
                throw error
            }
            let found = try next.status()
            if found.kind == .symbolicLink {
                var target = parent.pushing(try next.linkTarget(path: path))
                target.append(remaining)
                return .link(target.lexicallyNormalized())
            }
            parent.append(name)
            current = next
            status = found
        }
        return .file(current, status)
    }
}
