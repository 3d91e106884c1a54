import ManagedObjectModels

/// What a derived attribute's value is made of, as far as Core Data makes triggers for it (NSDerivedAttributeDescription;
/// a path has one step, or two from a relationship to an attribute).
enum DerivationExpression: Equatable {
    enum Function: String {
        case canonical, uppercase, lowercase

        /// Core Data's, which SQLite itself doesn't have.
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

    /// `now()`: when the object was saved.
    case now
    /// `name`, `author.name`, or a function of it.
    case value(path: [String], Function?)
    /// `count:(pages)`, `pages.@count`, `sum:(pages.words)`, `pages.words.@sum`, `pages.@sum.words`.
    case aggregate(Aggregate, path: [String])

    var path: [String] {
        switch self {
        case .now: []
        case .value(let path, _), .aggregate(_, let path): path
        }
    }

    /// Nil for what Core Data makes no triggers for.
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
        if function == nil, let place = keys.firstIndex(where: { $0.hasPrefix("@") }) {
            function = String(keys.remove(at: place).dropFirst())
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
