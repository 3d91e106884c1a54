import Glibc
import LinuxSystem
import MappingModels
import SQLiteStore
import SystemPackage

/// Binary data that may lie in files of its own, `.NAME_SUPPORT/_EXTERNAL_DATA/` beside the store: the column then
/// holds 2 and the file's name, else 1 and the data.
struct ExternalData {
    /// Gives the data itself, for an attribute that is kept in the store.
    static let function = "gs_external_data"
    private static let largest: Int64 = 1 << 30

    private let directory: FilePath

    /// - Parameter store: The store that refers to the files.
    init(of store: FilePath) {
        let name = "." + (store.lastComponent?.stem ?? "") + "_SUPPORT"
        directory = store.removingLastComponent().appending(name).appending("_EXTERNAL_DATA")
    }

    func register(_ store: StoreWriter) throws {
        try store.addFunction(Self.function, arguments: 1) { values in
            guard case .blob(let bytes) = values[0] else { return values[0] }
            return .blob(try data(bytes))
        }
    }

    /// Where the file lies that a column names; nil where that is no name of Core Data's, a UUID.
    func file(named name: String) -> FilePath? {
        guard name.count == 36, name.allSatisfy({ $0.isHexDigit || $0 == "-" }) else { return nil }
        return directory.appending(name)
    }

    /// What a column's bytes stand for.
    func data(_ bytes: [UInt8]) throws -> [UInt8] {
        switch bytes.first {
        case 1: return Array(bytes.dropFirst())
        case 2:
            let name = String(decoding: bytes.dropFirst().prefix { $0 != 0 }, as: UTF8.self)
            guard let path = file(named: name) else {
                throw MappingFault("the name of an external data file is damaged")
            }
            let file = try Descriptor(opening: path, flags: O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
            let status = try file.status(path: path)
            guard status.kind == .regular, status.size <= Self.largest else {
                throw MappingFault("\(PrintablePath(path)) is no file of external data")
            }
            return try file.read(count: Int(status.size), at: 0, path: path)
        default: return bytes
        }
    }
}
