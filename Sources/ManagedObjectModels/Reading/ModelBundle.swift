import LinuxSystem
import SystemPackage

/// All versions of one model: an `.xcdatamodeld`, an `.xcdatamodel`, a `.momd`, a `.mom`.
public struct ModelBundle: Sendable {
    public let path: FilePath
    /// In the order of their names, numbers in them by value: `Notes`, `Notes 2`, `Notes 10`.
    public let versions: [ModelVersion]
    /// Versions that can't be read, though the others can: in Xcode 3's format.
    public let unreadable: [UnreadableVersion]
    private let currentIndex: Int

    public var current: ModelVersion { versions[currentIndex] }

    /// Nil for no versions.
    package init?(
        path: FilePath, versions: [ModelVersion], unreadable: [UnreadableVersion] = [], currentName: String?
    ) {
        let sorted = versions.sorted { $0.name.precedesByNumber($1.name) }
        guard !sorted.isEmpty else { return nil }
        self.path = path
        self.unreadable = unreadable.sorted { $0.name.precedesByNumber($1.name) }
        self.versions = sorted
        currentIndex = currentName.flatMap { name in sorted.firstIndex { $0.name == name } } ?? sorted.count - 1
    }

    /// Reads every version. Throws `ModelError`.
    public init(reading path: FilePath) throws {
        self = try ModelFiles(path).bundle()
    }

    public func isCurrent(_ version: ModelVersion) -> Bool { version.name == current.name }

    /// The versions whose entities' hashes are these, the current one first, then the latest. Several may have the same:
    /// hashes leave out renaming identifiers. Which of them a store is of, `versions(of:)` tells.
    ///
    /// All entities count, as they do in `isConfiguration(withName:compatibleWithStoreMetadata:)`, whatever the
    /// configuration's name: a store that was added with one has tables and hashes for all of its model's entities.
    public func versions(matching hashes: [String: [UInt8]]) -> [ModelVersion] {
        byLikelihood.filter { $0.model.entityVersionHashesByName == hashes }
    }

    private var byLikelihood: [ModelVersion] { [current] + versions.reversed().filter { !isCurrent($0) } }

    /// A version that has all of these hashes, and more entities besides; nil when there is none, or no hash.
    package func version(exceeding hashes: [String: [UInt8]]) -> ModelVersion? {
        guard !hashes.isEmpty else { return nil }
        return byLikelihood.first { version in
            let known = version.model.entityVersionHashesByName
            return known.count > hashes.count && hashes.allSatisfy { known[$0.key] == $0.value }
        }
    }
}

/// A version of a model that can't be read.
public struct UnreadableVersion: Equatable, Sendable {
    /// Its file's name without extension.
    public let name: String
    public let error: ModelError
}

extension String {
    /// Digits that stand together are one number, as a person sorts file names.
    package func precedesByNumber(_ other: String) -> Bool {
        var one = Substring(self)
        var another = Substring(other)
        while let first = one.first, let second = another.first {
            if first.isASCIIDigit, second.isASCIIDigit {
                let number = one.takeNumber()
                let otherNumber = another.takeNumber()
                if number != otherNumber {
                    return (number.count, number) < (otherNumber.count, otherNumber)
                }
            } else if first != second {
                // A name goes before the same name with something behind it: “Notes.1” after “Notes”.
                return first < second
            } else {
                one.removeFirst()
                another.removeFirst()
            }
        }
        return one.isEmpty && !another.isEmpty
    }
}

extension Substring {
    /// Removes the digits at the beginning, and gives those that count.
    fileprivate mutating func takeNumber() -> String {
        let digits = prefix { $0.isASCIIDigit }
        removeFirst(digits.count)
        return String(digits.drop { $0 == "0" })
    }
}

extension Character {
    fileprivate var isASCIIDigit: Bool { ("0"..."9").contains(self) }
}
