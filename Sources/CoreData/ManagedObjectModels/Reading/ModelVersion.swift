import SystemPackage

/// One version of a model, as read from a file. ``ModelBundle`` provides the versions of a model.
///
/// ```swift
/// for version in bundle.versions {
///     print(version.name, version.model.entities.count)
/// }
/// ```
public struct ModelVersion: Sendable {
    /// The file name without extension, such as `Notes 2`.
    public let name: String
    /// The schema.
    public let model: ManagedObjectModel
    /// The file of the version.
    public let path: FilePath
    /// The parts of the file that were ignored.
    public let remarks: [ModelReadingNote]
    /// The line of each `Entity` and `Entity.property` in the file, counted from 1. Empty for a compiled model.
    package let lines: [String: Int]
    /// The versions that were merged; empty for a version that was read from one file.
    package let components: [ModelVersion]

    package init(
        name: String, model: ManagedObjectModel, path: FilePath, remarks: [ModelReadingNote] = [],
        lines: [String: Int] = [:], components: [ModelVersion] = []
    ) {
        self.components = components
        self.name = name
        self.model = model
        self.path = path
        self.remarks = remarks
        self.lines = lines
    }

    /// Returns the line of a property, or of its entity if the property has none.
    package func line(entity: String?, property: String? = nil) -> Int? {
        guard let entity else { return nil }
        return property.flatMap { lines[entity + "." + $0] } ?? lines[entity]
    }

    /// Returns the file and line of a property, or of its entity if the property has none; nil if neither has a line.
    package func location(entity: String?, property: String? = nil) -> (path: FilePath, line: Int)? {
        ([self] + components).lazy.compactMap { version in
            version.line(entity: entity, property: property).map { (version.path, $0) }
        }.first
    }

    /// Returns the version with another model, one that was changed in code.
    package func replacing(_ model: ManagedObjectModel) -> ModelVersion {
        ModelVersion(name: name, model: model, path: path, remarks: remarks, lines: lines, components: components)
    }
}

/// A note about an ignored part of a model's file, such as an XML attribute that Xcode's model compiler ignores.
public struct ModelReadingNote: Equatable, Sendable {
    /// The entity that the note is about; nil for the whole model.
    public let entity: String?
    /// The property that the note is about; nil for the whole entity.
    public let property: String?
    /// The line, counted from 1; nil if unknown.
    public let line: Int?
    /// The reason, in one line.
    public let message: String
    /// A suggestion that helps, in one line.
    public let remedy: String

    /// The entity and property, if any, followed by the message.
    package var sentence: String {
        let place = [entity, property].compactMap(\.self).joined(separator: ".")
        return (place.isEmpty ? "" : place + ": ") + message
    }

    package init(entity: String?, property: String?, line: Int?, _ message: String, remedy: String) {
        self.entity = entity
        self.property = property
        self.line = line
        self.message = message
        self.remedy = remedy
    }
}
