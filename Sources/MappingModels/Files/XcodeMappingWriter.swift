import FoundationEssentials

extension MappingModel {
    /// As the `xcmapping.xml` of an `.xcmappingmodel`: what Xcode's mapping model is, but for the snapshots of the
    /// models that Xcode keeps in it and takes anew. Throws `MappingModelError` for what Xcode has no words for: a name
    /// that isn't Xcode's own, the hashes that its compiler takes from the models, and steps before and after.
    public func xcodeDocument() throws(MappingModelError) -> String {
        do {
            var writer = XcodeMappingWriter()
            return try writer.document(self)
        } catch {
            throw MappingModelError(error, .inexpressible, nil)
        }
    }
}

/// Writes Xcode's form.
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
        let identifier = takeIdentifier()
        var members: [String] = []
        for (number, mapping) in model.entityMappings.enumerated() {
            members.append(try write(mapping, number: number + 1, of: identifier))
        }
        begin("XDDEVMAPPINGMODEL", identifier)
        add("sourcemodelpath", "string", model.sourceVersionName.map { $0 + ".xcdatamodel" })
        add("destinationmodelpath", "string", model.destinationVersionName.map { $0 + ".xcdatamodel" })
        refer("entitymappings", "0/0", "XDDEVENTITYMAPPING", members)
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

    private mutating func takeIdentifier() -> String {
        defer { next += 1 }
        return "z\(next)"
    }

    // MARK: Mappings

    private mutating func write(
        _ mapping: EntityMapping, number: Int, of model: String
    ) throws(MappingFault) -> String {
        let usual = EntityMapping.name(from: mapping.sourceEntityName, to: mapping.destinationEntityName)
        guard mapping.name == usual else {
            throw MappingFault(
                "Xcode would name this mapping \(usual)", remedy: "leave its name out, or keep the YAML form",
                element: mapping.name)
        }
        guard mapping.mapsOnlyWhatIsListed || mapping.destinationEntityName == nil else {
            throw MappingFault(
                "Xcode's mapping models list each property", remedy: "name the models with --source and --destination",
                element: mapping.name)
        }
        let identifier = takeIdentifier()
        var attributes: [String] = []
        // What isn't listed is new.
        for one in mapping.attributeMappings where one.isAutomatic || one.valueExpression != nil {
            attributes.append(write(one, "XDDEVATTRIBUTEMAPPING", of: identifier))
        }
        var relationships: [String] = []
        for one in mapping.relationshipMappings {
            relationships.append(write(one, "XDDEVRELATIONSHIPMAPPING", of: identifier))
        }
        begin("XDDEVENTITYMAPPING", identifier)
        add("migrationpolicyclassname", "string", mapping.entityMigrationPolicyClassName)
        add("sourcename", "string", mapping.sourceEntityName)
        add("mappingtypename", "string", "Undefined")
        add("mappingnumber", "int16", String(number))
        add("destinationname", "string", mapping.destinationEntityName)
        add("autogenerateexpression", "bool", mapping.filter == nil ? "1" : "0")
        add("sourceexpressiondata", "binary", mapping.fetchExpression.map(Self.archive))
        if !mapping.userInfo.isEmpty { add("userinfodata", "binary", Self.archive(mapping.userInfo)) }
        refer("mappingmodel", "1/1", "XDDEVMAPPINGMODEL", [model])
        refer("attributemappings", "0/0", "XDDEVATTRIBUTEMAPPING", attributes)
        refer("relationshipmappings", "0/0", "XDDEVRELATIONSHIPMAPPING", relationships)
        end()
        return identifier
    }

    private mutating func write(_ mapping: PropertyMapping, _ type: String, of entityMapping: String) -> String {
        let identifier = takeIdentifier()
        begin(type, identifier)
        add("valueexpressiondata", "binary", mapping.valueExpression.map(Self.archive))
        if type == "XDDEVRELATIONSHIPMAPPING" {
            add("autogenerateexpression", "bool", mapping.isAutomatic ? "1" : "0")
        }
        add("name", "string", mapping.name)
        if !mapping.userInfo.isEmpty { add("userinfodata", "binary", Self.archive(mapping.userInfo)) }
        refer("entitymapping", "1/1", "XDDEVENTITYMAPPING", [entityMapping])
        end()
        return identifier
    }

    // MARK: XML

    private mutating func begin(_ type: String, _ identifier: String) {
        lines.append("    <object type=\"\(type)\" id=\"\(identifier)\">")
    }

    private mutating func end() { lines.append("    </object>") }

    private mutating func add(_ name: String, _ type: String, _ value: String?) {
        guard let value else { return }
        lines.append("        <attribute name=\"\(name)\" type=\"\(type)\">\(value.escapedForXML)</attribute>")
    }

    private mutating func refer(_ name: String, _ type: String, _ destination: String, _ identifiers: [String]) {
        let references = identifiers.isEmpty ? "" : " idrefs=\"\(identifiers.joined(separator: " "))\""
        lines.append(
            "        <relationship name=\"\(name)\" type=\"\(type)\" destination=\"\(destination)\"\(references)>"
                + "</relationship>")
    }

    private static func archive(_ expression: MappingExpression) -> String {
        var writer = ArchivedExpressionWriter()
        return Data(writer.archive(expression).utf8).base64EncodedString()
    }

    private static func archive(_ userInfo: [String: String]) -> String {
        var writer = ArchivedExpressionWriter()
        return Data(writer.archive(userInfo).utf8).base64EncodedString()
    }
}

extension EntityMapping {
    /// What fetches the source's objects, where it doesn't fetch all of them.
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
