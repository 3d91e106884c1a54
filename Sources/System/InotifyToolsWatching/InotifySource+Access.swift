import DirectoryWatching
import SystemPackage

extension InotifySource {
    /// The way from the source to the kernel.
    package enum Access: CaseIterable, Sendable {
        /// The system calls of inotify(7). Any number of such sources may exist.
        case systemCalls
        #if InotifyTools
            /// libinotifytools, which allows one source in a process and no descriptor above 1023.
            case libinotifytools
        #endif

        /// The package trait `InotifyTools`, which is enabled by default, selects libinotifytools.
        package static var standard: Access {
            #if InotifyTools
                .libinotifytools
            #else
                .systemCalls
            #endif
        }
    }

    /// Creates a source. With libinotifytools, it creates a file in `privateDirectory`, through which `wake()` works,
    /// removes it at the end, and throws EBUSY while another such source exists in this process. Throws `SystemError`.
    package convenience init(privateDirectory: FilePath, through access: Access = .standard) throws {
        switch access {
        case .systemCalls: try self.init()
        #if InotifyTools
            case .libinotifytools: try self.init(InotifyTools(privateDirectory: privateDirectory))
        #endif
        }
    }
}
