import CoreDataStore
import ManagedObjectModels
import MappingModels

extension ManagedObjectModel {
    /// Throws `MigrationError` if no store can have the model's tables.
    func checkLayout() throws(MigrationError) {
        do { try StoreLayout(self).validate() } catch {
            let finding = MigrationFinding(fault: error)
            throw MigrationError(
                CoreDataError.migration, "Cannot migrate store in-place: " + finding.sentence, remedy: finding.remedy,
                findings: [finding])
        }
    }
}

extension MigrationFinding {
    /// Reports a fault of the model's layout, such as two tables with one name.
    init(fault: ModelFault) {
        self.init(
            .error, code: CoreDataError.migration, entity: fault.entity, property: fault.property, fault.message,
            remedy: fault.remedy)
    }
}
