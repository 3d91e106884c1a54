import GroupContainers
import SystemPackage

/// What one configuration file says, before it is merged with the others.
package struct ConfigurationFragment: Sendable, Equatable {
    struct Group: Sendable, Equatable {
        let identifier: GroupIdentifier
        let directory: FilePath
        /// True if the file names the directory; false if it is the group's standard one.
        let namesDirectory: Bool
        let line: Int?
        var stores: [Store] = []
        var apps: [App] = []
    }

    struct Store: Sendable, Equatable {
        var store: Configuration.Store
        let line: Int?
        /// The lines of its legacy paths.
        var legacyLines: [Int?] = []
    }

    struct App: Sendable, Equatable {
        var app: Configuration.App
        let line: Int?
    }

    /// The file; nil for the command line.
    let path: FilePath?
    /// Everything but the groups.
    var settings: Configuration
    var groups: [Group]
    /// True for a file without content, which as a drop-in switches off those of the same name in directories that are
    /// read before.
    var isEmpty = false
}
