import ManagedObjectModels

/// The derivation of an attribute in a form for which Core Data creates triggers (NSDerivedAttributeDescription). A
/// path has one step, or two from a relationship to an attribute.
enum DerivationExpression: Equatable {
    enum Function: String {
        case canonical, uppercase, lowercase

        /// The SQL function that Core Data registers. SQLite itself doesn't have it.
        var sqlName: String {
            switch self {
            case .canonical: "NSCoreDataCanonical"
            case .uppercase: "NSCoreDataToUpper"
            case .lowercase: "NSCoreDataToLower"
            }
        }
    }

    enum Aggregate: String {
        case count, sum, min, max
    }

    /// `now()`: the time of the save.
    case now
    /// `name`, `author.name`, or a function of one.
    case value(path: [String], Function?)
    /// `count:(pages)`, `pages.@count`, `sum:(pages.words)`, `pages.words.@sum`, `pages.@sum.words`.
    case aggregate(Aggregate, path: [String])

    var path: [String] {
        switch self {
        case .now: []
        case .value(let path, _), .aggregate(_, let path): path
        }
    }

    /// Returns nil for a derivation for which Core Data creates no triggers.
    init?(_ derivation: AttributeDescription.Derivation) {
        guard derivation.filteringPredicate == nil else { return nil }
        let text = derivation.expression.filter { !$0.isWhitespace }
        guard text != "now()" else {
            self = .now
            return
        }
        var path = text
        var function: String?
        if let end = text.firstRange(of: ":("), text.hasSuffix(")") {
            function = String(text[..<end.lowerBound])
            path = String(text[end.upperBound...].dropLast())
        }
        var keys = path.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        if function == nil, let index = keys.firstIndex(where: { $0.hasPrefix("@") }) {
            function = String(keys.remove(at: index).dropFirst())
            guard function.flatMap(Aggregate.init) != nil else { return nil }
        }
        guard (1...2).contains(keys.count), keys.allSatisfy(\.isKey) else { return nil }
        switch function {
        case nil: self = .value(path: keys, nil)
        case let name?:
            if let aggregate = Aggregate(rawValue: name) {
                self = .aggregate(aggregate, path: keys)
            } else if let function = Function(rawValue: name) {
                self = .value(path: keys, function)
            } else {
                return nil
            }
        }
    }
}

extension String {
    fileprivate var isKey: Bool {
        !isEmpty && allSatisfy { $0.isLetter || $0.isNumber || $0 == "_" } && first?.isNumber == false
    }
}
