import Glibc
import SystemPackage

extension FilePath {
    /// The path with its symbolic links followed, as far as it exists: what isn't there yet stays as it is written,
    /// also behind a link that leads nowhere yet. A relative path stays as it is.
    package var resolvingLinks: FilePath {
        guard isAbsolute else { return self }
        var waiting = Array(components.reversed())
        var found: FilePath = "/"
        // A circle ends as the kernel ends it (path_resolution(7)).
        var links = 0
        while let name = waiting.popLast() {
            switch name.kind {
            case .currentDirectory: continue
            case .parentDirectory: found.removeLastComponent()
            case .regular:
                let path = found.appending(name)
                guard links < 40, let target = path.target else {
                    found = path
                    continue
                }
                links += 1
                if target.isAbsolute { found = "/" }
                waiting += target.components.reversed()
            }
        }
        return found
    }

    /// Where a symbolic link leads, as it is written; nil if there is none.
    private var target: FilePath? {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let length = withPlatformString { readlink($0, &buffer, buffer.count - 1) }
        return length > 0 ? FilePath(platformString: buffer) : nil
    }
}
