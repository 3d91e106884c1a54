import SystemPackage

@testable import ManagedObjectModels

/// A model from the content of a `<model>`.
func model(_ content: String) throws -> ManagedObjectModel {
    try XMLModelReader.read(Array("<model>\(content)</model>".utf8), path: "/M/contents", name: "M").model
}

/// One entity with one property.
func entity(_ property: String, _ attributes: String = "") -> String {
    "<entity name='A' \(attributes)>\(property)</entity>"
}
