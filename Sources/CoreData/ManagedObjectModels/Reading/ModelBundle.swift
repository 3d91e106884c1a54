import LinuxSystem
import SystemPackage

/// The versions of a model, read from an `.xcdatamodeld`, `.xcdatamodel`, `.momd` or `.mom`.
///
/// Apple doesn't document these formats. A source model is XML; its meaning was derived from the output of Xcode's
/// compiler. A compiled model is an archive by `NSKeyedArchiver`.
///
/// ```swift
/// let bundle = try ModelBundle(reading: "/opt/notes/Notes.momd")
/// print(bundle.current.name, bundle.current.model.versionChecksum)
/// ```
public struct ModelBundle: Sendable {
    /// The file or directory that was read.
    public let path: FilePath
    /// The versions, sorted by name with numbers by value: `Notes`, `Notes 2`, `Notes3`, `Notes 10`. Never empty.
    public let versions: [ModelVersion]
    /// The versions in Xcode 3's format, which can't be read. Sorted like ``versions``.
    public let unreadable: [UnreadableVersion]
    /// The bundles that were merged; empty for a bundle that was read from one place.
    package let parts: [ModelBundle]
    private let currentIndex: Int

    /// The files or directories that were read.
    package var paths: [FilePath] { parts.isEmpty ? [path] : parts.map(\.path) }

    /// The version that new stores get. The bundle names it; otherwise it is the last of ``versions``.
    public var current: ModelVersion { versions[currentIndex] }

    /// Returns nil if there are no versions.
    package init?(
        path: FilePath, versions: [ModelVersion], unreadable: [UnreadableVersion] = [], currentName: String?
    ) {
        let sorted = versions.sorted { $0.name.precedesAsVersion($1.name) }
        guard !sorted.isEmpty else { return nil }
        self.path = path
        parts = []
        self.unreadable = unreadable.sorted { $0.name.precedesAsVersion($1.name) }
        self.versions = sorted
        currentIndex = currentName.flatMap { name in sorted.firstIndex { $0.name == name } } ?? sorted.count - 1
    }

    /// Creates a bundle from versions that aren't empty.
    init(
        merged versions: [ModelVersion], of parts: [ModelBundle], path: FilePath? = nil,
        unreadable: [UnreadableVersion], currentName: String
    ) {
        let sorted = versions.sorted { $0.name.precedesAsVersion($1.name) }
        self.versions = sorted
        self.parts = parts
        self.path = path ?? parts.first?.path ?? ""
        self.unreadable = unreadable
        currentIndex = sorted.firstIndex { $0.name == currentName } ?? sorted.count - 1
    }

    /// Reads all versions of a model.
    ///
    /// - Parameter path: A model's file or directory, or the `contents` file of an `.xcdatamodel`.
    /// - Throws: ``ModelError`` if the current version, or any version but one in Xcode 3's format, can't be read.
    public init(reading path: FilePath) throws {
        self = try ModelFiles(path).bundle()
    }

    /// Returns true for the ``current`` version.
    public func isCurrent(_ version: ModelVersion) -> Bool { version.name == current.name }

    /// Returns the versions with these entity hashes: the current version first, then the others from last to first.
    /// Several versions may have equal hashes, which don't cover renaming identifiers.
    ///
    /// All entities must match, as in `isConfiguration(withName:compatibleWithStoreMetadata:)`, whatever the
    /// configuration's name. A store that was added with a configuration has tables and hashes for all entities of its
    /// model.
    ///
    /// - Parameter hashes: The 32-byte version hash of each entity, by name.
    public func versions(matching hashes: [String: [UInt8]]) -> [ModelVersion] {
        byLikelihood.filter { $0.model.entityVersionHashesByName == hashes }
    }

    private var byLikelihood: [ModelVersion] { [current] + versions.reversed().filter { !isCurrent($0) } }

    /// Returns a version that has all of these hashes and further entities; nil if there is none or `hashes` is empty.
    package func version(extending hashes: [String: [UInt8]]) -> ModelVersion? {
        guard !hashes.isEmpty else { return nil }
        return byLikelihood.first { version in
            let known = version.model.entityVersionHashesByName
            return known.count > hashes.count && hashes.allSatisfy { known[$0.key] == $0.value }
        }
    }
}

/// A version of a model that can't be read.
public struct UnreadableVersion: Equatable, Sendable {
    /// The file name without extension.
    public let name: String
    /// The reason.
    public let error: ModelError
}

extension String {
    /// Returns true if a version of this name sorts before one named `other`: numbers count by value, and separators
    /// between a word and a number don't, as in `Notes 2`, `Notes3`, `Notes 4`.
    package func precedesAsVersion(_ other: String) -> Bool {
        let (own, others) = (joiningNumbers, other.joiningNumbers)
        if own.precedesNumerically(others) { return true }
        return !others.precedesNumerically(own) && precedesNumerically(other)
    }

    /// The name without the separators between a word and a number. Those between two numbers stay: `1.2` isn't 12.
    private var joiningNumbers: String {
        var joined = ""
        for character in self {
            if character.isASCIIDigit {
                let rest = joined.reversed().drop { " _-.".contains($0) }
                if rest.first?.isASCIIDigit != true { joined = String(rest.reversed()) }
            }
            joined.append(character)
        }
        return joined
    }

    /// Returns true if the string sorts before `other` with each run of digits compared as a number.
    package func precedesNumerically(_ other: String) -> Bool {
        var left = Substring(self)
        var right = Substring(other)
        while let first = left.first, let second = right.first {
            if first.isASCIIDigit, second.isASCIIDigit {
                let number = left.removeLeadingNumber()
                let otherNumber = right.removeLeadingNumber()
                if number != otherNumber {
                    return (number.count, number) < (otherNumber.count, otherNumber)
                }
            } else if first != second {
                // A name sorts before its extensions: “Notes” before “Notes.1”.
                return first < second
            } else {
                left.removeFirst()
                right.removeFirst()
            }
        }
        return left.isEmpty && !right.isEmpty
    }
}

extension Substring {
    /// Removes the leading digits and returns them without leading zeros.
    fileprivate mutating func removeLeadingNumber() -> String {
        let digits = prefix { $0.isASCIIDigit }
        removeFirst(digits.count)
        return String(digits.drop { $0 == "0" })
    }
}

extension Character {
    fileprivate var isASCIIDigit: Bool { ("0"..."9").contains(self) }
}
