import SystemPackage
import TestSupport
import Testing

@testable import ManagedObjectModels

/// Damaged and hostile compiled models.
@Suite struct DamagedModelTests {
    /// Returns a small compiled model in the form of `NSKeyedArchiver`; `more` is Python code that changes `objects`.
    private static func archive(_ more: String = "") throws -> [UInt8] {
        try python(
            """
            import plistlib, sys
            U = plistlib.UID
            def cls(name): return {'$classname': name, '$classes': [name, 'NSObject']}
            objects = ['$null',
                {'$class': U(2), 'NSEntities': U(3), 'NSVersionIdentifiers': U(0)}, cls('NSManagedObjectModel'),
                {'$class': U(4), 'NS.keys': [U(5), U(12)], 'NS.objects': [U(6), U(13)]}, cls('NSMutableDictionary'), 'Note',
                {'$class': U(7), 'NSEntityName': U(5), 'NSProperties': U(8), 'NSSuperentity': U(0)}, cls('NSEntityDescription'),
                {'$class': U(4), 'NS.keys': [U(9), U(14)], 'NS.objects': [U(10), U(15)]}, 'price',
                {'$class': U(11), 'NSPropertyName': U(9), 'NSAttributeType': 400, '_P': 243, 'NSDefaultValue': U(17)},
                cls('NSAttributeDescription'), 'Sub',
                {'$class': U(7), 'NSEntityName': U(12), 'NSSuperentity': U(6), 'NSProperties': U(8)}, 'r',
                {'$class': U(16), 'NSPropertyName': U(14), '_NSDestinationEntityName': U(5), 'NSMaxCount': -1, 'NSIsOrdered': True},
                cls('NSRelationshipDescription'),
                {'$class': U(18), 'NS.mantissa': bytes([57, 48] + [0] * 14), 'NS.exponent': -3, 'NS.negative': True,
                    'NS.mantissa.bo': 1}, cls('NSDecimalNumber')]
            \(more)
            sys.stdout.buffer.write(plistlib.dumps({'$archiver': 'NSKeyedArchiver', '$version': 100000,
                '$top': {'root': U(1)}, '$objects': objects}, fmt=plistlib.FMT_BINARY))
            """)
    }

    private static func read(_ bytes: [UInt8]) throws -> ManagedObjectModel {
        try ArchivedModelReader.read(bytes, path: "/M.mom", name: "M").model
    }

    @Test func readsAnIntactModel() throws {
        let model = try Self.read(Self.archive())
        #expect(model.entities.map(\.name) == ["Note", "Sub"])
        let price = model.entities[0].attributes[0]
        #expect(price.type == .decimal && price.isOptional)
        #expect(price.defaultValue == .decimal("-12.345"))
        let relationship = model.entities[0].relationships[0]
        #expect(relationship.isToMany && relationship.isOrdered && relationship.maxCount == -1)
        // An archive repeats inherited properties; the model declares them once.
        #expect(model.entities[1].attributes.isEmpty && model.entities[1].relationships.isEmpty)
        #expect(model.properties(of: model.entities[1]).map(\.name) == ["price", "r"])
    }

    @Test(arguments: [
        ("objects[1]['$class'] = U(4)", "not a model"), ("objects[6]['NSSuperentity'] = U(13)", "inherits from itself"),
        ("objects[6]['NSSuperentity'] = U(6)", "inherits from itself"),
        ("objects[10]['NSAttributeType'] = 401", "attribute type"),
        ("objects[15]['_NSDestinationEntityName'] = 'Nowhere'", "destination"),
        ("objects[15]['_NSDestinationEntityName'] = U(0)", "destination"),
        ("objects[6]['NSEntityName'] = U(99)", "name"),
        ("objects[3]['NS.objects'] = [U(5), U(13)]", "not an entity"),
        ("objects[8]['NS.objects'] = [U(5), U(15)]", "not a property"),
        ("objects[10]['$class'] = U(4)", "not a property"), ("objects = 'none'", "not a keyed archive"),
        ("objects = ['$null']", "root"),
    ])
    func refusesInvalidModels(_ change: String, _ word: String) throws {
        let error = #expect(throws: ModelError.self) { try Self.read(Self.archive(change)) }
        #expect(error?.message.contains(word) == true, "\(error?.message ?? "")")
        #expect(error?.remedy.isEmpty == false)
    }

    /// Composite attributes and predicates contain themselves, and an entity is its own property.
    @Test func survivesCycles() throws {
        let composite =
            "objects[10]['NSElements'] = U(19); objects += [{'$class': U(20), 'NS.objects': [U(10)]}, cls('NSArray')]"
        #expect(throws: ModelError.self) { try Self.read(Self.archive(composite)) }
        let predicate = """
            objects[10]['NSValidationPredicates'] = U(19); objects += [{'$class': U(20), 'NS.objects': [U(21)]}, \
            cls('NSArray'), {'$class': U(22), 'NSCompoundPredicateType': 1, 'NSSubpredicates': U(19)}, cls('NSCompoundPredicate')]
            """
        #expect(try Self.read(Self.archive(predicate)).entities[0].attributes[0].validations.count == 1)
        #expect(throws: ModelError.self) { try Self.read(Self.archive("objects[8]['NS.objects'] = [U(6), U(6)]")) }
    }

    /// Both sides of a predicate are the next one, so the text would double at each of sixty levels.
    @Test func limitsAPredicateThatDoubles() throws {
        let change = """
            objects[10]['NSValidationPredicates'] = U(19)
            objects += [{'$class': U(20), 'NS.objects': [U(22), U(22)]}, cls('NSArray'), cls('NSCompoundPredicate')]
            for level in range(60):
                objects.append({'$class': U(21), 'NSCompoundPredicateType': 1, 'NSSubpredicates': U(len(objects) + 1)})
                objects.append({'$class': U(20), 'NS.objects': [U(len(objects) + 1)] * 2})
            objects.append({'$class': U(21), 'NSCompoundPredicateType': 1, 'NSSubpredicates': U(0)})
            """
        let text = try Self.read(Self.archive(change)).entities[0].attributes[0].validations[0].predicate
        #expect(text.utf8.count < 1 << 20)
    }

    /// Composite attributes multiply at each level, in both formats.
    @Test func refusesCompositesThatMultiply() throws {
        let change = """
            objects[10]['NSElements'] = U(20)
            objects.append(cls('NSArray'))
            for level in range(15):
                objects.append({'$class': U(19), 'NS.objects': [U(len(objects) + 1)] * 100})
                objects.append({'$class': U(11), 'NSAttributeType': 2100, 'NSElements': U(len(objects) + 1)})
            """
        let error = #expect(throws: ModelError.self) { try Self.read(Self.archive(change)) }
        #expect(error?.message.contains("nested") == true)
        let composites = (0..<15).map { level in
            let attribute = "attributeType='Composite' compositeName='C\(level + 1)'"
            let attributes = (0..<100).map { "<attribute name='x\($0)' \(attribute)/>" }.joined()
            return "<composite name='C\(level)'>\(attributes)</composite>"
        }
        let text =
            composites.joined()
            + "<entity name='A'><attribute name='x' attributeType='Composite' compositeName='C0'/></entity>"
        #expect(throws: ModelError.self) { try XMLModelReaderTests.read("<model>\(text)</model>") }
    }

    /// Thousands of entities share a dictionary of thousands of properties.
    @Test func refusesSharedPropertiesBeyondTheLimit() throws {
        let change = """
            objects[8]['NS.keys'] = [U(9)] * 5000; objects[8]['NS.objects'] = [U(10)] * 5000
            objects[3]['NS.keys'] = [U(5)] * 5000; objects[3]['NS.objects'] = [U(6)] * 5000
            """
        let error = #expect(throws: ModelError.self) { try Self.read(Self.archive(change)) }
        #expect(error?.path == "/M.mom")
    }

    /// Damages every byte in turn. The result is an error or another model, no trap.
    @Test func survivesDamageToEveryByte() throws {
        let intact = try Self.archive()
        var refused = 0
        for index in intact.indices {
            for value: UInt8 in [0x00, 0x7F, 0xFF, intact[index] ^ 1] {
                var bytes = intact
                bytes[index] = value
                if (try? Self.read(bytes)) == nil { refused += 1 }
            }
        }
        #expect(refused > 100)
    }
}
