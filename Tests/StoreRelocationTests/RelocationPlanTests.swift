import Testing

@testable import StoreRelocation

/// The table of the design, a row a case.
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

    @Test func nothingAnywhereIsNothingToDo() {
        #expect(plan(.nothing, .nothing) == .nothingToDo(adopted: false))
        #expect(plan(.zeroBytes, .nothing) == .nothingToDo(adopted: false))
        #expect(plan(.nothing, .orphans) == .nothingToDo(adopted: false))
    }

    @Test func aStoreInTheGroupAloneIsAdopted() {
        #expect(plan(.nothing, rows) == .nothingToDo(adopted: true))
        #expect(plan(.zeroBytes, rows) == .nothingToDo(adopted: true))
    }

    @Test func aLegacyStoreAloneIsRelocated() {
        #expect(plan(rows, .nothing) == .relocate(archivingFirst: nil))
        #expect(plan(schema, .nothing) == .relocate(archivingFirst: nil))
        #expect(plan(.store(.opaque), .nothing) == .relocate(archivingFirst: nil))
    }

    @Test func remainsInTheGroupAreSetAside() {
        #expect(plan(rows, .orphans) == .relocate(archivingFirst: .remains))
        #expect(plan(rows, .zeroBytes) == .relocate(archivingFirst: .remains))
    }

    @Test func oneEntryUnderTwoPathsIsAlreadyRelocated() {
        #expect(plan(rows, rows, relation: .sameEntry) == .alreadyRelocated)
    }

    @Test func oneFileUnderTwoNamesIsRefused() {
        #expect(plan(rows, rows, relation: .twoNames) == .refuse(.twoNames, atGroup: false))
    }

    @Test func anEmptyStoreInTheGroupGivesWay() {
        guard case .relocate(.store) = plan(rows, schema) else { return #expect(Bool(false), "not relocated") }
    }

    @Test func anEmptyLegacyStoreIsArchived() {
        for group in [rows, schema] {
            guard case .archiveLegacy = plan(schema, group) else { return #expect(Bool(false), "not archived") }
        }
    }

    @Test(arguments: RelocationRequest.ConflictPolicy.allCases)
    func sameContentIsFinished(policy: RelocationRequest.ConflictPolicy) {
        #expect(plan(rows, rows, comparison: .same, onConflict: policy) == .retireLegacy)
    }

    @Test func externalDataThatTheGroupDoesNotHaveIsKept() {
        #expect(plan(rows, rows, comparison: .sameRows) == .conflict)
        for comparison in [RelocationEvidence.Comparison.published, .publishedRows] {
            guard case .archiveLegacy = plan(rows, rows, comparison: comparison) else {
                return #expect(Bool(false), "not archived")
            }
        }
    }

    @Test func differentContentIsAConflictUnlessToldOtherwise() {
        #expect(plan(rows, rows, comparison: .different) == .conflict)
        guard case .archiveLegacy = plan(rows, rows, comparison: .different, onConflict: .keepGroup),
            case .relocate(.store) = plan(rows, rows, comparison: .different, onConflict: .keepLegacy)
        else { return #expect(Bool(false), "the policy was not followed") }
    }

    @Test func whatCannotBeComparedIsAConflict() {
        #expect(plan(.store(.opaque), rows) == .conflict)
        #expect(plan(rows, .store(.opaque)) == .conflict)
    }

    @Test(arguments: [Side.nothing, .zeroBytes, .orphans, .store(.rows)])
    func halfAStoreIsRefusedWhateverTheGroupHas(group: Side) {
        #expect(plan(.orphans, group) == .refuse(.halfAStore, atGroup: false))
        #expect(plan(.unusable(.corrupt("x")), group) == .refuse(.corrupt("x"), atGroup: false))
    }

    @Test func aGroupStoreThatCannotBeReadIsRefusedToo() {
        #expect(plan(rows, .unusable(.notARegularFile)) == .refuse(.notARegularFile, atGroup: true))
    }

    @Test func nothingToMoveIsNeverARefusal() {
        #expect(plan(.nothing, .unusable(.corrupt("x"))) == .nothingToDo(adopted: false))
    }
}
