import LinuxSystem
import SystemPackage
import Testing

@testable import AppRelocation

/// The decision, without a disk.
@Suite struct AppPlanTests {
    private static let root = FileIdentity(device: 1, inode: 10)
    private static let other = FileIdentity(device: 1, inode: 11)

    @Test(arguments: [
        (AppFacts(source: .directory(root), destination: .nothing), AppPlan.move(root, replacesLink: false)),
        (AppFacts(source: .nothing, destination: .nothing), .refuse(.noSource)),
        (AppFacts(source: .nothing, destination: .directory(other)), .refuse(.noSource)),
        (AppFacts(source: .other, destination: .nothing), .refuse(.sourceIsFile)),
        (AppFacts(source: .link(to: other), destination: .directory(other)), .alreadyMoved),
        (AppFacts(source: .link(to: root), destination: .directory(other)), .refuse(.sourceIsLink)),
        (AppFacts(source: .link(to: nil), destination: .nothing), .refuse(.sourceLeadsNowhere)),
        (AppFacts(source: .directory(root), destination: .directory(root)), .alreadyMoved),
        (AppFacts(source: .directory(root), destination: .directory(other)), .refuse(.taken)),
        (AppFacts(source: .directory(root), destination: .other), .refuse(.taken)),
        (AppFacts(source: .directory(root), destination: .link(to: root)), .refuse(.taken)),
        (
            AppFacts(source: .directory(root), destination: .link(to: root), isUndo: true),
            .move(root, replacesLink: true)
        ),
        (AppFacts(source: .directory(root), destination: .link(to: other), isUndo: true), .refuse(.taken)),
        (AppFacts(source: .directory(root), destination: .nothing, isInside: true), .refuse(.inside)),
        (AppFacts(source: .directory(root), destination: .nothing, hasRecords: true), .refuse(.records)),
        (AppFacts(source: .directory(root), destination: .nothing, mountPoint: "/a/b"), .refuse(.mounted("/a/b"))),
    ])
    func followsFromWhatWasSeen(_ facts: AppFacts, _ plan: AppPlan) { #expect(AppPlan(facts) == plan) }
}
