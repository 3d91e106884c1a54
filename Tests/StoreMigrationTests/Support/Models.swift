import SystemPackage

@testable import ManagedObjectModels

/// Returns a model from the content of a `<model>` element.
func model(_ content: String) throws -> ManagedObjectModel {
    try XMLModelReader.read(Array("<model>\(content)</model>".utf8), path: "/M/contents", name: "M").model
}

/// Returns the XML of one entity with one property.
func entity(_ property: String, _ attributes: String = "") -> String {
    "<entity name='A' \(attributes)>\(property)</entity>"
}
