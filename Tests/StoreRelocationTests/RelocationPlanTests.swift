import Testing

@testable import StoreRelocation

/// The decision table, one test per row.
@Suite struct RelocationPlanTests {
    typealias Side = RelocationEvidence.Side

    private func plan(
        _ legacy: Side, _ group: Side, relation: RelocationEvidence.Relation = .separate,
        comparison: RelocationEvidence.Comparison? = nil, onConflict: RelocationRequest.ConflictPolicy = .refuse
    ) -> RelocationPlan {
        RelocationPlan(
            RelocationEvidence(legacy: legacy, group: group, relation: relation, comparison: comparison),
            onConflict: onConflict)
    }

    private let rows = Side.store(.rows)
    private let schema = Side.store(.schemaOnly)

    @Test func doesNothingWithoutAStore() {
        #expect(plan(.nothing, .nothing) == .nothingToDo(adopted: false))
        #expect(plan(.zeroBytes, .nothing) == .nothingToDo(adopted: false))
        #expect(plan(.nothing, .orphans) == .nothingToDo(adopted: false))
    }

    @Test func adoptsAStoreInTheGroup() {
        #expect(plan(.nothing, rows) == .nothingToDo(adopted: true))
        #expect(plan(.zeroBytes, rows) == .nothingToDo(adopted: true))
    }

    @Test func relocatesALegacyStore() {
        #expect(plan(rows, .nothing) == .relocate(archivingFirst: nil))
        #expect(plan(schema, .nothing) == .relocate(archivingFirst: nil))
        #expect(plan(.store(.opaque), .nothing) == .relocate(archivingFirst: nil))
    }

    @Test func setsLeftoversInTheGroupAside() {
        #expect(plan(rows, .orphans) == .relocate(archivingFirst: .leftovers))
        #expect(plan(rows, .zeroBytes) == .relocate(archivingFirst: .leftovers))
    }

    @Test func treatsOneEntryWithTwoPathsAsRelocated() {
        #expect(plan(rows, rows, relation: .sameEntry) == .alreadyRelocated)
    }

    @Test func refusesOneFileWithTwoNames() {
        #expect(plan(rows, rows, relation: .twoNames) == .refuse(.twoNames, atGroup: false))
    }

    @Test func archivesAnEmptyStoreInTheGroup() {
        guard case .relocate(.store) = plan(rows, schema) else { return #expect(Bool(false), "not relocated") }
    }

    @Test func archivesAnEmptyLegacyStore() {
        for group in [rows, schema] {
            guard case .archiveLegacy = plan(schema, group) else { return #expect(Bool(false), "not archived") }
        }
    }

    @Test func mergesOnlyOnRequest() {
        #expect(plan(rows, rows, comparison: .different, onConflict: .merge) == .merge)
        #expect(plan(rows, rows, comparison: .sameRows, onConflict: .merge) == .merge)
        #expect(plan(rows, .nothing, onConflict: .merge) == .relocate(archivingFirst: nil))
        #expect(plan(rows, rows, comparison: .different) == .conflict)
    }

    /// A merge that was killed before it had archived the legacy store is completed by any run.
    @Test(arguments: RelocationRequest.ConflictPolicy.allCases)
    func archivesALegacyStoreThatWasMerged(policy: RelocationRequest.ConflictPolicy) {
        guard case .archiveLegacy = plan(rows, rows, comparison: .merged, onConflict: policy) else {
            Issue.record("not archived")
            return
        }
    }

    @Test(arguments: RelocationRequest.ConflictPolicy.allCases)
    func retiresALegacyStoreWithTheSameContent(policy: RelocationRequest.ConflictPolicy) {
        #expect(plan(rows, rows, comparison: .same, onConflict: policy) == .retireLegacy)
    }

    @Test func keepsExternalDataThatTheGroupLacks() {
        #expect(plan(rows, rows, comparison: .sameRows) == .conflict)
        for comparison in [RelocationEvidence.Comparison.published, .publishedRows] {
            guard case .archiveLegacy = plan(rows, rows, comparison: comparison) else {
                return #expect(Bool(false), "not archived")
            }
        }
    }

    @Test func appliesThePolicyToDifferentContent() {
        #expect(plan(rows, rows, comparison: .different) == .conflict)
        guard case .archiveLegacy = plan(rows, rows, comparison: .different, onConflict: .keepGroup),
            case .relocate(.store) = plan(rows, rows, comparison: .different, onConflict: .keepLegacy)
        else { return #expect(Bool(false), "the policy was not followed") }
    }

    @Test func treatsIncomparableStoresAsAConflict() {
        #expect(plan(.store(.opaque), rows) == .conflict)
        #expect(plan(rows, .store(.opaque)) == .conflict)
    }

    @Test(arguments: [Side.nothing, .zeroBytes, .orphans, .store(.rows)])
    func refusesHalfAStore(group: Side) {
        #expect(plan(.orphans, group) == .refuse(.halfAStore, atGroup: false))
        #expect(plan(.unusable(.corrupt("x")), group) == .refuse(.corrupt("x"), atGroup: false))
    }

    @Test func refusesAnUnreadableGroupStore() {
        #expect(plan(rows, .unusable(.notARegularFile)) == .refuse(.notARegularFile, atGroup: true))
    }

    @Test func doesNotRefuseWithoutALegacyStore() {
        #expect(plan(.nothing, .unusable(.corrupt("x"))) == .nothingToDo(adopted: false))
    }
}
