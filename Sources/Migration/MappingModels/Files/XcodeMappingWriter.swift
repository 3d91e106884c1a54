import FoundationEssentials
import ManagedObjectModels
import PropertyLists

extension MappingModel {
    /// Returns the mapping model as the `xcmapping.xml` of an `.xcmappingmodel`. It lacks the snapshots of the models,
    /// which Xcode creates again.
    ///
    /// - Throws: ``MappingModelError`` with the code ``MappingModelError/Code/inexpressible`` for elements that Xcode's
    ///   form doesn't have: mapping names other than Xcode's own, version hashes, and steps before and after.
    public func xcodeDocument() throws(MappingModelError) -> String {
        do {
            var writer = XcodeMappingWriter()
            return try writer.document(self)
        } catch {
            throw MappingModelError(error, code: .inexpressible, at: nil)
        }
    }
}

/// Writes a mapping model in Xcode's form.
struct XcodeMappingWriter {
    private var lines: [String] = []
    private var next = 102

    mutating func document(_ model: MappingModel) throws(MappingFault) -> String {
        guard model.preparations.isEmpty, model.completions.isEmpty else {
            throw MappingFault("Xcode's mapping models have no steps before and after", remedy: "keep the YAML form")
        }
        if let mapping = model.entityMappings.first(where: \.hasHashes) {
            throw MappingFault(
                "Xcode's mapping models have no hashes: its compiler takes those of the versions",
                remedy: "name the models with --old and --new, or keep the YAML form", element: mapping.name)
        }
        let identifier = nextIdentifier()
        var members: [String] = []
        for (number, mapping) in model.entityMappings.enumerated() {
            members.append(try write(mapping, number: number + 1, of: identifier))
        }
        begin("XDDEVMAPPINGMODEL", identifier)
        add("sourcemodelpath", type: "string", model.sourceVersionName.map { $0 + ".xcdatamodel" })
        add("destinationmodelpath", type: "string", model.destinationVersionName.map { $0 + ".xcdatamodel" })
        refer("entitymappings", count: "0/0", to: "XDDEVENTITYMAPPING", members)
        end()
        return (Self.head(next) + lines + ["</database>", ""]).joined(separator: "\n")
    }

    private static func head(_ next: Int) -> [String] {
        [
            "<?xml version=\"1.0\" standalone=\"yes\"?>",
            "<!DOCTYPE database SYSTEM \"file:///System/Library/DTDs/CoreData.dtd\">", "", "<database>",
            "    <databaseInfo>", "        <version>134481920</version>",
            "        <UUID>\(UUID().uuidString)</UUID>", "        <nextObjectID>\(next)</nextObjectID>",
            "        <metadata>", "            <plist version=\"1.0\">", "                <dict>",
            "                    <key>NSStoreModelVersionHashesVersion</key>",
            "                    <integer>3</integer>", "                </dict>", "            </plist>",
            "        </metadata>", "    </databaseInfo>",
        ]
    }

    private mutating func nextIdentifier() -> String {
        defer { next += 1 }
        return "z\(next)"
    }

    // MARK: Mappings

    private mutating func write(
        _ mapping: EntityMapping, number: Int, of model: String
    ) throws(MappingFault) -> String {
        let defaultName = EntityMapping.name(from: mapping.sourceEntityName, to: mapping.destinationEntityName)
        guard mapping.name == defaultName else {
            throw MappingFault(
                "Xcode would name this mapping \(defaultName)", remedy: "leave its name out, or keep the YAML form",
                element: mapping.name)
        }
        guard mapping.mapsOnlyWhatIsListed || mapping.destinationEntityName == nil else {
            throw MappingFault(
                "Xcode's mapping models list each property", remedy: "name the models with --old and --new",
                element: mapping.name)
        }
        let identifier = nextIdentifier()
        var attributes: [String] = []
        // An unlisted attribute is new.
        for attribute in mapping.attributeMappings where attribute.isAutomatic || attribute.valueExpression != nil {
            attributes.append(write(attribute, "XDDEVATTRIBUTEMAPPING", of: identifier))
        }
        var relationships: [String] = []
        for relationship in mapping.relationshipMappings {
            relationships.append(write(relationship, "XDDEVRELATIONSHIPMAPPING", of: identifier))
        }
        begin("XDDEVENTITYMAPPING", identifier)
        add("migrationpolicyclassname", type: "string", mapping.entityMigrationPolicyClassName)
        add("sourcename", type: "string", mapping.sourceEntityName)
        add("mappingtypename", type: "string", "Undefined")
        add("mappingnumber", type: "int16", String(number))
        add("destinationname", type: "string", mapping.destinationEntityName)
        add("autogenerateexpression", type: "bool", mapping.filter == nil ? "1" : "0")
        add("sourceexpressiondata", type: "binary", mapping.fetchExpression.map(Self.archive))
        if !mapping.userInfo.isEmpty { add("userinfodata", type: "binary", Self.archive(mapping.userInfo)) }
        refer("mappingmodel", count: "1/1", to: "XDDEVMAPPINGMODEL", [model])
        refer("attributemappings", count: "0/0", to: "XDDEVATTRIBUTEMAPPING", attributes)
        refer("relationshipmappings", count: "0/0", to: "XDDEVRELATIONSHIPMAPPING", relationships)
        end()
        return identifier
    }

    private mutating func write(_ mapping: PropertyMapping, _ type: String, of entityMapping: String) -> String {
        let identifier = nextIdentifier()
        begin(type, identifier)
        add("valueexpressiondata", type: "binary", mapping.valueExpression.map(Self.archive))
        if type == "XDDEVRELATIONSHIPMAPPING" {
            add("autogenerateexpression", type: "bool", mapping.isAutomatic ? "1" : "0")
        }
        add("name", type: "string", mapping.name)
        if !mapping.userInfo.isEmpty { add("userinfodata", type: "binary", Self.archive(mapping.userInfo)) }
        refer("entitymapping", count: "1/1", to: "XDDEVENTITYMAPPING", [entityMapping])
        end()
        return identifier
    }

    // MARK: XML

    private mutating func begin(_ type: String, _ identifier: String) {
        lines.append("    <object type=\"\(type)\" id=\"\(identifier)\">")
    }

    private mutating func end() { lines.append("    </object>") }

    private mutating func add(_ name: String, type: String, _ value: String?) {
        guard let value else { return }
        lines.append("        <attribute name=\"\(name)\" type=\"\(type)\">\(value.escapedForXML)</attribute>")
    }

    private mutating func refer(_ name: String, count: String, to destination: String, _ identifiers: [String]) {
        let references = identifiers.isEmpty ? "" : " idrefs=\"\(identifiers.joined(separator: " "))\""
        lines.append(
            "        <relationship name=\"\(name)\" type=\"\(count)\" destination=\"\(destination)\"\(references)>"
                + "</relationship>")
    }

    private static func archive(_ expression: MappingExpression) -> String {
        archive { $0.expression(expression) }
    }

    private static func archive(_ userInfo: [String: String]) -> String {
        archive { builder in
            let members = userInfo.sorted { $0.key < $1.key }.map { ($0.key, builder.text($0.value)) }
            return builder.dictionary(members, "NSDictionary")
        }
    }

    /// Returns the archive of an object in Base64.
    private static func archive(_ root: (inout KeyedArchiveBuilder) -> PropertyListValue) -> String {
        var builder = KeyedArchiveBuilder()
        let root = root(&builder)
        return Data(builder.archive(root: root.uid ?? 0)).base64EncodedString()
    }
}

extension EntityMapping {
    /// The expression that fetches the source's objects; nil if all are fetched.
    fileprivate var fetchExpression: MappingExpression? {
        guard let filter, let sourceEntityName else { return nil }
        let request = MappingExpression.message(
            to: .variable("manager"), selector: "fetchRequestForSourceEntityNamed:predicateString:",
            [.constant(.string(sourceEntityName)), .constant(.string(filter.description))])
        return .fetch(request, in: .keyPath(of: .variable("manager"), "sourceContext"), isCountOnly: false)
    }
}

extension String {
    var escapedForXML: String {
        replacing("&", with: "&amp;").replacing("<", with: "&lt;").replacing(">", with: "&gt;")
            .replacing("\"", with: "&quot;")
    }
}
