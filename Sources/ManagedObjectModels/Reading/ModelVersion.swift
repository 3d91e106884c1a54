import SystemPackage

/// One version of a model, as it was read.
public struct ModelVersion: Sendable {
    /// Its file's name without extension.
    public let name: String
    public let model: ManagedObjectModel
    /// The file that it was read from.
    public let path: FilePath
    /// What is odd about the file, and was left out of the model.
    public let remarks: [ModelReadingNote]
    /// Where each element stands in the file: `Entity` or `Entity.property` to a line from 1. Empty for a compiled
    /// model.
    package let lines: [String: Int]

    package init(
        name: String, model: ManagedObjectModel, path: FilePath, remarks: [ModelReadingNote] = [],
        lines: [String: Int] = [:]
    ) {
        self.name = name
        self.model = model
        self.path = path
        self.remarks = remarks
        self.lines = lines
    }

    /// The line of a property, else of its entity.
    package func line(entity: String?, property: String? = nil) -> Int? {
        guard let entity else { return nil }
        return property.flatMap { lines[entity + "." + $0] } ?? lines[entity]
    }

    /// The same version with another model, one that was changed in code.
    package func replacing(_ model: ManagedObjectModel) -> ModelVersion {
        ModelVersion(name: name, model: model, path: path, remarks: remarks, lines: lines)
    }
}

/// What a model's file says and nobody hears, such as an attribute that the model's compiler ignores.
public struct ModelReadingNote: Equatable, Sendable {
    public let entity: String?
    public let property: String?
    public let line: Int?
    public let message: String
    public let remedy: String

    package init(entity: String?, property: String?, line: Int?, _ message: String, remedy: String) {
        self.entity = entity
        self.property = property
        self.line = line
        self.message = message
        self.remedy = remedy
    }
}
