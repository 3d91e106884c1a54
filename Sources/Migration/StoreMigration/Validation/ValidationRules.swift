import CoreDataStore
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// The validation rules of an entity's attributes: minimum, maximum, length, regular expression, and predicates of a
/// model built in code. Core Data doesn't apply them to an attribute without a value.
struct ValidationRules {
    private let layout: StoreLayout

    init(_ layout: StoreLayout) { self.layout = layout }

    /// Returns the checks of the entity's attributes, and a fault for each rule that can't be checked.
    func checks(of entity: EntityDescription) -> ([ValidationCondition], [InvalidContent.Fault]) {
        var (checks, faults): ([ValidationCondition], [InvalidContent.Fault]) = ([], [])
        for case .attribute(let attribute) in layout.model.properties(of: entity) where !attribute.isTransient {
            for (path, leaf) in Self.leaves(attribute, []) where !leaf.validations.isEmpty {
                let name = path.joined(separator: ".")
                guard let column = layout.column(of: name, of: entity.name)?.name else { continue }
                for rule in leaf.validations {
                    do throws(MappingFault) {
                        checks.append(try check(rule, of: leaf, named: name, column: column, entity))
                    } catch {
                        faults.append(
                            InvalidContent.Fault(
                                entity: entity.name, property: name, code: rule.errorCode ?? CoreDataError.validation,
                                "its rule “\(rule.predicate)” can't be checked here: \(error.message)", keys: []))
                    }
                }
            }
        }
        return (checks, faults)
    }

    /// Returns the attribute, or the elements of a composite one, each with its key path.
    private static func leaves(
        _ attribute: AttributeDescription, _ path: [String]
    ) -> [(path: [String], attribute: AttributeDescription)] {
        let path = path + [attribute.name]
        guard attribute.type == .composite else { return [(path, attribute)] }
        return attribute.elements.flatMap { leaves($0, path) }
    }

    private func check(
        _ rule: ValidationRule, of attribute: AttributeDescription, named name: String, column: String,
        _ entity: EntityDescription
    ) throws(MappingFault) -> ValidationCondition {
        let predicate: MappingPredicate
        do throws(FormatError) { predicate = try MappingPredicate(format: rule.predicate) } catch {
            throw MappingFault("\(error)")
        }
        let text = ValidationCondition.alias + "." + column.sqlName
        var compiler = ExpressionCompiler(layout, schema: "main").scoped(
            to: SQLValue(text: text, type: attribute.type, isExternal: attribute.allowsExternalBinaryDataStorage))
        let condition = try compiler.condition(predicate)
        let code = rule.errorCode ?? CoreDataError.validation
        return ValidationCondition(
            property: name, condition: "\(text) IS NOT NULL AND NOT \(condition)", code: code,
            message: "\(Self.words(code)) (\(rule.predicate))",
            remedy: "change the values, or the rule in the model")
    }

    private static func words(_ code: Int) -> String {
        switch code {
        case 1610: "its number is too large"
        case 1620: "its number is too small"
        case 1630: "its date is too late"
        case 1640: "its date is too soon"
        case 1660: "its text is too long"
        case 1670: "its text is too short"
        case 1680: "its text doesn't match the pattern"
        default: "it breaks a rule"
        }
    }
}
