import EndToEndSupport
import TestSupport

/// The type checker, as an app that uses the package's products calls it.
enum Typecheck {
    /// The options of swiftc.
    static var options: [Word] {
        let root = Programs.source("").description
        let build = Programs.directory
        let checkouts = build.removingLastComponent().removingLastComponent().appending("checkouts").string
        let modules: [String] = [
            build.string + "/Modules", root + "/Sources/SQLite/CSQLite", root + "/Sources/CoreData/CZlib",
            checkouts + "/GRDB.swift/Sources/GRDBSQLite", checkouts + "/swift-system/Sources/CSystem/include",
            root + "/Sources/System/CYAML", root + "/Sources/CoreData/CExpat",
        ]
        var options: [Word] = ["-typecheck", "-swift-version", "6", "-module-name", "Blocks"]
        for target in ["CLinux", "CXXHash"] {
            options += ["-Xcc", Word("-fmodule-map-file=\(build.string)/\(target).build/module.modulemap")]
        }
        for module in modules { options += ["-I", Word(module)] }
        return options
    }
}
