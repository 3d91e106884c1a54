import LinuxSystem
import ManagedObjectModels

/// The differences of two models as a page: first the list of changes, then the properties of each changed entity side
/// by side. The unchanged entities are folded.
struct DiffPage {
    private let old: ManagedObjectModel
    private let new: ManagedObjectModel
    private let names: (old: String, new: String)
    private let changes: [ModelDifference.Change]

    init(
        from old: ManagedObjectModel, named oldName: String, to new: ManagedObjectModel, named newName: String,
        _ changes: [ModelDifference.Change]
    ) {
        (self.old, self.new, self.changes) = (old, new, changes)
        names = (oldName, newName)
    }

    var lines: [String] {
        var page = HTMLPage("\(names.old) → \(names.new)")
        let star = changes.contains(where: \.changesVersionHash) ? " (★)" : ""
        page.add("<p>" + HTMLPage.text(ModelDifference.summary(changes)) + star + "</p>")
        if !changes.isEmpty { page.add("<ul class=\"changes\">" + changes.map(item).joined() + "</ul>") }
        let changed = Set(changes.map(\.entity))
        for entity in new.entities where changed.contains(entity.name) { add(entity, to: &page) }
        for change in changes where change.property == nil && change.kind == .removed {
            guard let entity = old.entity(named: change.entity) else { continue }
            page.add("<h2 id=\"\(anchor(entity.name))\" class=\"bad\">\(HTMLPage.text(entity.name)) (removed) ★</h2>")
            addTable(entity.declaredProperties.map { (style: "removed", cells: [Self.cell($0), ""]) }, to: &page)
        }
        addUnchanged(new.entities.filter { !changed.contains($0.name) }, to: &page)
        return page.lines
    }

    /// Returns the identifier of an entity's section: an entity's name may contain any character.
    private func anchor(_ entity: String) -> String {
        if let index = new.entities.firstIndex(where: { $0.name == entity }) { return "n\(index)" }
        return "o\(old.entities.firstIndex { $0.name == entity } ?? 0)"
    }

    /// Returns a change as an item of the list.
    private func item(_ change: ModelDifference.Change) -> String {
        let former = change.oldName.map { " from <code>\(HTMLPage.text($0))</code>" } ?? ""
        let words = Self.words(change)
        let details = words.isEmpty ? "" : ": " + words
        return "<li class=\"\(change.kind.rawValue)\">\(change.kind.rawValue) <a href=\"#\(anchor(change.entity))\">"
            + "<code>\(HTMLPage.text(change.path))</code></a>\(former)\(details)\(Self.star(change))</li>"
    }

    private static func star(_ change: ModelDifference.Change?) -> String {
        change?.changesVersionHash == true ? "&nbsp;★" : ""
    }

    private func add(_ entity: EntityDescription, to page: inout HTMLPage) {
        let own = changes.filter { $0.entity == entity.name }
        let change = own.first { $0.property == nil }
        let before = change?.kind == .added ? nil : old.entity(named: change?.oldName ?? entity.name)
        var title = HTMLPage.text(entity.name)
        if let former = change?.oldName { title += " <small>(renamed from \(HTMLPage.text(former)))</small>" }
        if before == nil { title += " (added)" }
        page.add("<h2 id=\"\(anchor(entity.name))\">\(title)\(Self.star(change))</h2>")
        let words = change.map(Self.words) ?? ""
        if !words.isEmpty { page.add("<p>\(words)</p>") }
        let rows = entity.declaredProperties.map { property in
            let changed = own.first { $0.property == property.name && $0.kind != .removed }
            let former = before?.declaredProperties.first { $0.name == changed?.oldName ?? property.name }
            return row(property, changed, former: changed?.kind == .added ? nil : former)
        }
        let removed = own.compactMap { change -> (style: String?, cells: [String])? in
            guard change.kind == .removed, let name = change.property,
                let property = before?.declaredProperties.first(where: { $0.name == name })
            else { return nil }
            return ("removed", [Self.cell(property) + Self.star(change), ""])
        }
        addTable(rows + removed, to: &page)
    }

    private func row(
        _ property: PropertyDescription, _ change: ModelDifference.Change?, former: PropertyDescription?
    ) -> (style: String?, cells: [String]) {
        let renaming = change?.oldName.map { " <small>(renamed from \(HTMLPage.text($0)))</small>" } ?? ""
        let words = change.map(Self.words) ?? ""
        let details = words.isEmpty ? "" : "<br>\(words)"
        return (
            former == nil ? "added" : change == nil ? nil : "changed",
            [former.map(Self.cell) ?? "", Self.cell(property) + renaming + Self.star(change) + details]
        )
    }

    private func addTable(_ rows: [(style: String?, cells: [String])], to page: inout HTMLPage) {
        if rows.isEmpty { return page.add("<p class=\"note\">no properties of its own</p>") }
        page.addTable([names.old, names.new], rows)
    }

    private func addUnchanged(_ entities: [EntityDescription], to page: inout HTMLPage) {
        guard !entities.isEmpty else { return }
        page.add("<details><summary>\(Counted(entities.count, "unchanged entity", "unchanged entities"))</summary>")
        for entity in entities {
            page.add("<h2>\(HTMLPage.text(entity.name))</h2>")
            page.addTable([names.new], entity.declaredProperties.map { (nil, [Self.cell($0)]) })
        }
        page.add("</details>")
    }

    private static func cell(_ property: PropertyDescription) -> String {
        let arrow = property.kind == "attribute" ? "" : " →"
        return "<code>\(HTMLPage.text(property.name))</code>\(arrow) \(HTMLPage.text(property.aspects.text))"
    }

    /// Returns the settings that changed, marked. That something was renamed is said beside its name.
    private static func words(_ change: ModelDifference.Change) -> String {
        let details = change.details.filter { change.oldName == nil || $0.aspect != "renamingIdentifier" }
        return details.map { detail in
            "<mark>" + HTMLPage.text("\(detail.aspect): \(detail.old ?? "not set") → \(detail.new ?? "not set")")
                + "</mark>"
        }.joined(separator: " ")
    }
}
