import ManagedObjectModels

/// The differences of two models as a page: each entity's properties side by side, changed ones marked.
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
        let toMigrate = changes.filter(\.changesVersionHash).count
        page.add(
            "<p>"
                + HTMLPage.text(
                    changes.isEmpty
                        ? "no difference" : "\(changes.count) changes, \(toMigrate) of which require a migration (★)")
                + "</p>")
        for entity in new.entities { add(entity, to: &page) }
        for change in changes where change.property == nil && change.kind == .removed {
            guard let entity = old.entity(named: change.entity) else { continue }
            page.add("<h2 class=\"bad\">\(HTMLPage.text(entity.name)) (removed) ★</h2>")
            page.addTable(
                [names.old, names.new],
                entity.declaredProperties.map { (style: "removed", cells: [Self.cell($0), ""]) })
        }
        return page.lines
    }

    private func add(_ entity: EntityDescription, to page: inout HTMLPage) {
        let own = changes.filter { $0.entity == entity.name }
        let change = own.first { $0.property == nil }
        let before = change?.kind == .added ? nil : old.entity(named: change?.oldName ?? entity.name)
        var title = HTMLPage.text(entity.name)
        if let former = change?.oldName { title += " <small>(was \(HTMLPage.text(former)))</small>" }
        if before == nil { title += " (added)" }
        page.add("<h2>\(title)\(change?.changesVersionHash == true ? " ★" : "")</h2>")
        if let change, !change.details.isEmpty { page.add("<p>\(Self.words(change))</p>") }
        var rows: [(style: String?, cells: [String])] = []
        for property in entity.declaredProperties {
            let changed = own.first { $0.property == property.name && $0.kind != .removed }
            let former = before?.declaredProperties.first { $0.name == changed?.oldName ?? property.name }
            let isAdded = changed?.kind == .added || former == nil
            let style: String? = isAdded ? "added" : changed == nil ? nil : "changed"
            let star = changed?.changesVersionHash == true ? " ★" : ""
            rows.append(
                (
                    style,
                    [isAdded ? "" : former.map(Self.cell) ?? "", Self.cell(property) + star + Self.marked(changed)]
                ))
        }
        for change in own where change.kind == .removed {
            guard let name = change.property,
                let property = before?.declaredProperties.first(where: { $0.name == name })
            else { continue }
            rows.append(("removed", [Self.cell(property) + (change.changesVersionHash ? " ★" : ""), ""]))
        }
        if rows.isEmpty { return page.add("<p class=\"note\">no properties of its own</p>") }
        page.addTable([names.old, names.new], rows)
    }

    private static func cell(_ property: PropertyDescription) -> String {
        let arrow = property.kind == "attribute" ? "" : " →"
        return "<code>\(HTMLPage.text(property.name))</code>\(arrow) \(HTMLPage.text(property.aspects.text))"
    }

    /// Returns the settings that changed, marked.
    private static func marked(_ change: ModelDifference.Change?) -> String {
        guard let change, !change.details.isEmpty else { return "" }
        return "<br>\(words(change))"
    }

    private static func words(_ change: ModelDifference.Change) -> String {
        change.details.map { detail in
            "<mark>" + HTMLPage.text("\(detail.aspect): \(detail.old ?? "-") → \(detail.new ?? "-")") + "</mark>"
        }.joined(separator: " ")
    }
}
