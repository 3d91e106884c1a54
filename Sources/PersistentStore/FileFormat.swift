/// What a file that should be a store is, judged by how it begins.
package enum FileFormat: Equatable, Sendable {
    case other
    package var description: String { "other" }
    package var mayBeOpaque: Bool { true }

    package init(firstBytes: [UInt8], size: Int64) { self = .other }
}
