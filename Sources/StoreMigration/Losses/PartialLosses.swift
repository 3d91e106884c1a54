import CoreDataStore
import MappingModels
import SQLiteStore

/// What a migration removes, without objects that the first step counts while it reads them anyway.
struct PartialLosses {
    /// The reason for an object that is removed because it has no new one.
    static let reason = "matches no entity mapping's condition"

    var counted: [RemovedContent.Loss] = []
    /// The entities whose objects are still to be counted, each with the place of that loss among the others.
    var deferred: [(entity: String, place: Int)] = []

    /// Returns all losses.
    ///
    /// - Parameter counts: The number of objects that match no condition, by entity.
    /// - Throws: `MigrationError` if one is missing.
    func completed(with counts: [String: Int64]) throws -> RemovedContent {
        var losses = counted
        for (entity, place) in deferred.reversed() {
            guard let count = counts[entity] else {
                throw MigrationError(
                    CoreDataError.migration, "the removed objects of \(entity) were not counted",
                    remedy: "report this with both models and the mapping model")
            }
            guard count > 0 else { continue }
            losses.insert(
                RemovedContent.Loss(entity: entity, .objects, count: count, reason: Self.reason), at: place)
        }
        return RemovedContent(losses)
    }
}

extension LossCounter {
    /// The entities whose excluded objects a mapping model's statement counts: those with one mapping, which has a
    /// condition and keeps keys, in a store that nothing changes before.
    func entitiesCountedByMapping() throws -> Set<String> {
        guard let mapping, mapping.preparations.isEmpty else { return [] }
        let resolved = try mapping.resolved(from: first.source, to: first.destination)
        let plan = MappingPlan(resolved, from: layout, to: StoreLayout(first.destination))
        let counting = plan.entityMappings.filter(\.countsExcludedObjects).compactMap { $0.source?.name }
        return Set(
            counting.filter { entity in
                removed[entity] == nil && plan.entityMappings.filter { $0.source?.name == entity }.count == 1
            })
    }
}

extension MigrationManager {
    /// Returns what all steps remove from a store of the first step's source version. Throws `StoreError`.
    package func losses(_ store: SQLiteConnection) throws -> RemovedContent {
        do { return try LossCounter(store, steps)?.losses() ?? .none } catch let error as MappingModelError {
            throw MigrationError(error)
        }
    }

    /// Returns the same without what the first step counts.
    func partialLosses(_ store: SQLiteConnection) throws -> PartialLosses {
        do {
            guard let counter = try LossCounter(store, steps) else { return PartialLosses() }
            return try counter.partialLosses(without: counter.entitiesCountedByMapping())
        } catch let error as MappingModelError {
            throw MigrationError(error)
        }
    }
}
