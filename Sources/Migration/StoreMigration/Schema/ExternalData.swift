import Glibc
import LinuxSystem
import MappingModels
import SQLiteStore
import SystemPackage

/// Binary data that may be stored in files under `.NAME_SUPPORT/_EXTERNAL_DATA/` beside the store. The column then
/// holds 2 and the file's name, else 1 and the data.
struct ExternalData {
    /// The SQL function that returns the data itself, for an attribute that is stored inline.
    static let function = "gs_external_data"
    private static let maximumFileSize: Int64 = 1 << 30

    private let directory: FilePath

    /// - Parameter store: The store that references the files.
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

    /// Returns the path of the file that a column names; nil if the name isn't a UUID, as Core Data's are.
    func file(named name: String) -> FilePath? {
        guard name.count == 36, name.allSatisfy({ $0.isHexDigit || $0 == "-" }) else { return nil }
        return directory.appending(name)
    }

    /// Returns the data that a column's bytes represent.
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
            guard status.kind == .regular, status.size <= Self.maximumFileSize else {
                throw MappingFault("\(PrintablePath(path)) is not an external data file")
            }
            return try file.read(count: Int(status.size), at: 0, path: path)
        default: return bytes
        }
    }
}
