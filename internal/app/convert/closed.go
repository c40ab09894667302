package convert

// openByHand names the ways to open a place that the converter has closed.
const openByHand = "to open it, write the rule by hand, or take the line out of the source and convert again"

// close notes a line that may keep clients from content and that the output cannot express. It returns the answer in the place of
// what the line guards. All guards of all languages that are not translated pass here: what is left out stays closed.
func (l *ledger) close(at pos, why, remedy string) *rule {
	l.closed(at, why+": clients get 403 in its place", joined(remedy, openByHand))
	r := newRule(at)
	r.note, r.fixed = "closed, see the report", &fixed{status: 403}
	return r
}

// closed notes a line that is left out while what it guards is not served.
func (l *ledger) closed(at pos, why, remedy string) {
	l.left(at, why, remedy)
	if line := l.lines[at]; line != nil {
		line.Closed = true
	}
}

// closeSources is close for what has a list of clients: none of them is served.
func (l *ledger) closeSources(at pos, why, remedy string) *sources {
	l.close(at, why, remedy)
	return &sources{denyOthers: true}
}
