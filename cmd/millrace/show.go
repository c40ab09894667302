package main

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/app/replay"
)

// group writes n with commas between thousands.
func group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// tally writes counts, largest first: "tcp 12, udp 3".
func tally(m map[string]uint64) string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if m[a] != m[b] {
			if m[a] > m[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	if len(names) == 0 {
		return "none"
	}
	for i, name := range names {
		names[i] = name + " " + group(m[name])
	}
	return strings.Join(names, ", ")
}

// line writes one line of a summary: a name and a value.
func (c *console) line(name, format string, args ...any) {
	c.printf("%s %s\n", c.paint(bold, fmt.Sprintf("%-10s", name)), fmt.Sprintf(format, args...))
}

// showEngine prints the engine, the share of each back end where there are two, and the fault of a GPU.
func showEngine(c *console, a *gpukern.EngineStats) {
	c.line("engine", "%s (%s), %s", a.Name, a.Device, a.Ops)
	if len(a.Backends) > 1 {
		var did []string
		for _, b := range a.Backends {
			wait := ""
			if b.WaitNs > 0 && b.Batches > 0 {
				wait = fmt.Sprintf(" of %.1f us", float64(b.WaitNs)/float64(b.Batches)/1000)
			}
			did = append(did, fmt.Sprintf("%s %s packets in %s batches%s, share %.0f %%", b.Name, group(b.Packets), group(b.Batches), wait, 100*b.Share))
		}
		c.line("", "%s", strings.Join(did, "; "))
	}
	if a.Retreats > 0 {
		c.line("", "%s", c.paint(red, fmt.Sprintf("the GPU was too slow %s times, and the CPU did its work for a while: does another program use it?", group(a.Retreats))))
	}
	if a.Fault != "" {
		c.line("", "%s", c.paint(red, fmt.Sprintf("the GPU has failed, the CPU does its work: %s; %s packets were processed again", a.Fault, group(a.Redone))))
	}
}

// showCalibrations prints the measurements of the back ends.
func showCalibrations(c *console, all []gpukern.CalibrationReport) {
	for _, v := range all {
		c.line("calibrated", "%s", v.Text)
	}
}

// showReplay prints the summary of a replay, with a table of the files where there are several.
func showReplay(c *console, r *replay.Report) {
	if len(r.Files) > 1 {
		showFiles(c, r.Files)
	}
	t := &r.Total
	showEngine(c, &r.Engine)
	c.line("packets", "%s, %s bytes, %s flows", group(t.Packets), group(t.Bytes), group(t.Flows))
	if r.FlowsUnknown > 0 {
		c.line("unknown", "%s packets of flows beyond the first %s", group(r.FlowsUnknown), group(t.Flows))
	}
	c.line("network", "IPv4 %s, IPv6 %s, other %s; VLAN %s, fragments %s, options %s", group(t.IPv4), group(t.IPv6),
		group(t.Packets-t.IPv4-t.IPv6), group(t.VLAN), group(t.Fragments), group(t.Options))
	c.line("protocols", "%s", tally(t.Protocols))
	c.line("checksums", "wrong: IPv4 %s, transport %s; transport not verifiable: %s",
		group(t.IPChecksumErrors), group(t.L4ChecksumErrors), group(t.L4Unverified))
	c.line("invalid", "malformed %s, truncated %s", group(t.Malformed), group(t.Truncated))
	for _, h := range r.Rules {
		over := ""
		if h.Over > 0 {
			over = fmt.Sprintf(" (%s over the rate)", group(h.Over))
		}
		c.line(fmt.Sprintf("rule %d", h.Line), "%s packets%s: %s", group(h.Packets), over, h.Text)
	}
	for _, h := range r.Patterns {
		c.line(fmt.Sprintf("pattern %d", h.Line), "%s matches in %s packets: %s", group(h.Matches), group(h.Packets), h.Text)
	}
	if x := r.Expressions; x != nil {
		c.line("expressions", "%s in %s, over %s bytes of %s: %s", count(x.Expressions, "expression", "expressions"), count(x.Automata, "automaton", "automata"),
			group(x.Bytes), count(x.Streams, "stream", "streams"), metric(8*float64(x.Bytes)/max(x.Seconds, 1e-9), "bit/s"))
	}
	showInspected(c, r.Inspected)
	if r.MoreMatches > 0 {
		c.line("more", "%s packets have more matches than the limit of one packet", group(r.MoreMatches))
	}
	if len(r.NextHops) > 0 {
		c.line("next hops", "%s", tally(r.NextHops))
	}
	c.line("dropped", "%s", tally(t.Dropped))
	c.line("passed", "%s", group(t.Passed))
	if o := r.Output; o != nil {
		c.line("sent", "%s packets, %s bytes to %s (%s: %s), tx invalid %s",
			group(o.Packets), group(o.Bytes), o.Device, o.Driver, o.Negotiated, group(o.TxInvalid))
	}
	if o := r.Output; o != nil {
		c.line("rate", "%s, %s, in %.3f s", metric(o.PacketRate, "pps"), metric(o.BitRate, "bit/s"), o.Seconds)
	}
	for _, w := range []*replay.Saved{r.Saved, r.Captured} {
		if w != nil {
			c.line("written", "%s packets, %s bytes to %s", group(w.Packets), group(w.Bytes), w.Path)
		}
	}
	c.line("time", "%.3f s, %.2f Mpps, %s, %.1f ns per packet, of which the engine %.1f",
		t.Seconds, t.Mpps, metric(t.BitRate, "bit/s"), t.NsPacket, t.EngineNs)
	if r.Stopped {
		c.line("stopped", "before the end")
	}
	if r.Conversations != nil {
		showConversations(c, r.Conversations)
	}
}

// showInspected prints what inspection rules found, a line for each that alerted.
func showInspected(c *console, r *replay.Inspected) {
	if r == nil {
		return
	}
	c.line("inspected", "%s packets by %s: %s alerts, %s anomalies", group(r.Packets), count(r.Rules, "rule", "rules"), group(r.Alerts), group(r.Anomalies))
	for _, h := range r.Hits {
		c.line(fmt.Sprintf("sid %d", h.SID), "%s alerts: %s", group(h.Alerts), visible(h.Msg))
	}
}

// metric writes a rate with a prefix of the SI, in three digits: "1.25 Gbit/s".
func metric(v float64, unit string) string {
	prefixes := []string{"", "k", "M", "G", "T"}
	i := 0
	for ; v >= 999.5 && i < len(prefixes)-1; i++ {
		v /= 1000
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " " + prefixes[i] + unit
}

// showConversations prints a table of flows, the largest first. Times count from the first packet of the run, however many are listed.
func showConversations(c *console, r *replay.Conversations) {
	c.printf("\n%s\n", c.paint(bold, fmt.Sprintf("%s of %s conversations, by bytes", group(uint64(len(r.List))), group(uint64(r.Total)))))
	if len(r.List) == 0 {
		return
	}
	wideA, wideB := len("A"), len("B")
	what := ""
	if len(r.Applications) > 0 {
		what = "application"
	}
	for _, one := range r.List {
		wideA, wideB = max(wideA, len(end(one.A))), max(wideB, len(end(one.B)))
	}
	const columns = "%-8s %-*s %-*s %12s %14s %12s %14s %12s %12s  %s\n"
	c.printf("%s", c.paint(bold, fmt.Sprintf(columns, "protocol", wideA, "A", wideB, "B",
		"packets A-B", "bytes A-B", "packets B-A", "bytes B-A", "start s", "duration s", what)))
	for _, one := range r.List {
		c.printf(columns, one.Protocol, wideA, end(one.A), wideB, end(one.B),
			group(one.PacketsAB), group(one.BytesAB), group(one.PacketsBA), group(one.BytesBA),
			fmt.Sprintf("%.6f", one.Start.Sub(r.Began).Seconds()), fmt.Sprintf("%.6f", one.Seconds), strings.TrimSpace(applied(one.Application)+" "+alerted(&one)))
	}
	if r.Others > 0 {
		c.printf("%s packets are in no conversation of this list\n", group(r.Others))
	}
	showApplications(c, r.Applications)
}

// showApplications prints a line for each application protocol of a run.
func showApplications(c *console, list []replay.ApplicationSum) {
	if len(list) == 0 {
		return
	}
	const columns = "%-16s %12s %12s %14s\n"
	c.printf("\n%s", c.paint(bold, fmt.Sprintf(columns, "application", "flows", "packets", "bytes")))
	for _, a := range list {
		c.printf(columns, a.Protocol, group(a.Flows), group(a.Packets), group(a.Bytes))
	}
}

// applied writes what a flow was recognised as, for the end of its line.
func applied(a *replay.Application) string {
	if a == nil {
		return ""
	}
	words := []string{a.Protocol}
	if a.Name != "" {
		words = append(words, visible(a.Name))
	}
	if a.JA4 != "" {
		words = append(words, visible(a.JA4))
	}
	if len(a.Rules) > 0 {
		words = append(words, fmt.Sprint("rules ", a.Rules))
	}
	return strings.Join(words, " ")
}

// alerted writes the inspection rules that alerted in a flow, and how often each, for the end of its line.
func alerted(f *replay.Conversation) string {
	var words []string
	for _, h := range f.Alerts {
		words = append(words, fmt.Sprintf("%dx sid %d", h.Alerts, h.SID))
	}
	if f.MoreAlerts > 0 {
		words = append(words, fmt.Sprintf("%dx other sids", f.MoreAlerts))
	}
	if f.Anomalies > 0 {
		words = append(words, count(int(f.Anomalies), "anomaly", "anomalies"))
	}
	if len(words) == 0 {
		return ""
	}
	return "alerts [" + strings.Join(words, ", ") + "]"
}

// visible quotes a name of a capture that would change the terminal.
func visible(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// end writes an end of a conversation: without a port for a protocol that has none.
func end(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// showFiles prints a line for each file.
func showFiles(c *console, files []replay.File) {
	wide := len("file")
	for i := range files {
		wide = max(wide, len(filepath.Base(files[i].Path)))
	}
	const columns = "%-*s %12s %14s %9s %9s %9s %9s %8s  %s\n"
	c.printf("%s", c.paint(bold, fmt.Sprintf(columns, wide, "file", "packets", "bytes", "flows", "bad sums", "invalid", "dropped", "Mpps", "")))
	for i := range files {
		f := &files[i]
		note := ""
		if unreadable(f) != nil {
			note = c.paint(red, "unreadable, see below")
		}
		c.printf(columns, wide, filepath.Base(f.Path), group(f.Packets), group(f.Bytes), group(f.Flows),
			group(f.IPChecksumErrors+f.L4ChecksumErrors), group(f.Malformed+f.Truncated), group(f.Packets-f.Passed),
			strconv.FormatFloat(f.Mpps, 'f', 2, 64), note)
	}
	c.printf("\n")
}

// showVerification prints what --verify found.
func showVerification(c *console, v *replay.Verification) {
	for _, m := range v.Mismatches {
		c.printf("%s: record %d: %s: engine %s, %s %s\n", m.Path, m.Record, m.Field, m.Engine, m.By, m.Other)
	}
	if hidden := v.Count - uint64(len(v.Mismatches)); hidden > 0 {
		c.printf("... and %s more\n", group(hidden))
	}
	verdict := c.paint(green, "all agree")
	if v.Count > 0 {
		verdict = c.paint(red, group(v.Count)+" mismatches")
	}
	c.line("verified", "%s packets against the reference, %s of them against gopacket too, %s records skipped: %s",
		group(v.Packets), group(v.Decoded), group(v.Skipped), verdict)
}
