import CLinux
import Glibc
import SystemPackage

/// What another user may do with a file by the permissions of the file system: theirs, not ours.
///
/// Root asks the kernel, in a child process that is that user. Who isn't root can't become anybody else, and goes by the
/// mode and the ACL of each directory on the way and of the file (`AccessControlList`); where those can't be read, the
/// answer is no.
package struct UserAccess: Sendable {
    package enum Answer: Sendable, Equatable {
        /// They may, and this is the file.
        case granted(FileIdentity)
        /// There is nothing, and they could find that out by themselves.
        case absent
        /// They may not; what there is, they can't know.
        case denied
    }

    /// A path, and what is to be done with it: `R_OK`, `W_OK`, `X_OK` of access(2).
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

    /// `asksKernel`: as root alone can.
    package init(_ user: PeerCredentials, asksKernel: Bool = geteuid() == 0) {
        self.user = user
        self.asksKernel = asksKernel
    }

    package func answer(_ path: FilePath, _ mode: CInt) -> Answer {
        answers([Question(path, mode)]).first ?? .denied
    }

    /// One answer for each question, in their order; symbolic links are followed.
    package func answers(_ questions: [Question]) -> [Answer] {
        guard !questions.isEmpty else { return [] }
        // Root may do everything.
        if user.uid == 0 { return questions.map { Self.own($0.path) } }
        return asksKernel ? kernelAnswers(questions) : questions.map(computed)
    }

    /// Milliseconds. The path leads where that user likes, into a file system of theirs that doesn't answer, too.
    private static let patience: CInt = 2000

    private static func own(_ path: FilePath) -> Answer {
        FileStatus(following: path).map { .granted($0.identity) } ?? (errno == ENOENT ? .absent : .denied)
    }

    private func kernelAnswers(_ questions: [Question]) -> [Answer] {
        let paths = questions.map { question in question.path.withPlatformString { strdup($0) } }
        defer { for path in paths { free(path) } }
        var asked = zip(paths, questions).map { path, question in
            gs_access_question(path: UnsafePointer(path), mode: question.mode, error: EACCES, device: 0, inode: 0)
        }
        let groups = CInt(user.groups.count)
        guard gs_access_as(user.uid, user.gid, user.groups, groups, &asked, CInt(asked.count), Self.patience) == 0
        else {
            // A file system that doesn't answer would keep this process waiting as well.
            return errno == ETIMEDOUT ? questions.map { _ in .denied } : questions.map(computed)
        }
        return asked.map { answer in
            switch answer.error {
            case 0: .granted(FileIdentity(device: answer.device, inode: answer.inode))
            case ENOENT: .absent
            default: .denied
            }
        }
    }

    /// Each component is looked at by descriptor, so that nothing is judged by one name and found by another.
    private func computed(_ question: Question) -> Answer {
        do throws(SystemError) {
            var path = question.path
            for _ in 0..<40 {
                switch try step(path) {
                case .file(let found, let status):
                    let may = try AccessControlList(of: found, status).admits(user, to: question.mode)
                    return may ? .granted(status.identity) : .denied
                case .link(let target): path = target
                case .absent: return .absent
                case .closed: return .denied
                }
            }
        } catch {}
        return .denied
    }

    private enum Step: ~Copyable {
        case file(Descriptor, FileStatus)
        case link(FilePath)
        case absent
        case closed
    }

    private func step(_ path: FilePath) throws(SystemError) -> Step {
        var place = try Descriptor(opening: "/", flags: O_RDONLY | O_DIRECTORY)
        var status = try place.status()
        var parent = FilePath("/")
        var rest = Array(path.components)
        while !rest.isEmpty {
            guard status.kind == .directory, try AccessControlList(of: place, status).admits(user, to: X_OK) else {
                return .closed
            }
            let name = rest.removeFirst()
            let next: Descriptor
            do throws(SystemError) {
                let directory = place.raw
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
                target.append(rest)
                return .link(target.lexicallyNormalized())
            }
            parent.append(name)
            place = next
            status = found
        }
        return .file(place, status)
    }
}
