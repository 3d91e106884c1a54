import LinuxSystem
import SystemPackage
import TestSupport

/// A model with its versions in a directory.
package enum ModelBundle {
    /// Creates an `.xcdatamodeld` with the versions in order, the last one being current.
    package static func make(
        in directory: TemporaryDirectory, named name: String = "Notes", _ versions: [(name: String, content: String)]
    ) throws -> FilePath {
        try make(in: directory.path, named: name, versions)
    }

    package static func make(
        in directory: FilePath, named name: String = "Notes", _ versions: [(name: String, content: String)]
    ) throws -> FilePath {
        let bundle = directory.appending(name + ".xcdatamodeld")
        for version in versions {
            let folder = bundle.appending(version.name + ".xcdatamodel")
            try run("mkdir", ["-p", Word(folder)])
            try write(
                "<?xml version=\"1.0\"?>\n<model>\n\(version.content)\n</model>\n", to: folder.appending("contents"))
        }
        let current = "<string>\(versions.last?.name ?? "").xcdatamodel</string>"
        try write(
            "<plist><dict><key>_XCCurrentVersionName</key>\(current)</dict></plist>",
            to: bundle.appending(".xccurrentversion"))
        return bundle
    }
}
