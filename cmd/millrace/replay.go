package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/gpukern/expression"
	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/pmd/pcap"
)

// replayFlags are the flags of replay.
type replayFlags struct {
	engine, rules, rate string
	filter              string
	patterns, routes    string
	matches             bool
	conversations       int
	classify            int
	eve                 bool
	write, capture      string
	maxGap              time.Duration
	to                  endpoint
	loop                int
	limit               uint64
	verify, json        bool
	ruleFlags           // how rules are read
}

const replayLong = `Replay pcap and pcapng files (also compressed by gzip; "-" is standard input)
through the engine and the filter, and summarize them: protocols, flows, checksum
errors, rule hits, drops by reason, packets per second. Malformed packets and
those with truncated headers are dropped. Wrong checksums are only counted, since
captures made on the sender have many (checksum offload). --to sends the packets
that pass.

--filter replays only the packets that an expression matches, in the language of
tcpdump (see millrace filter expr). It sees them with the link header of the capture.

--rules reads one rule per line; the first match decides (docs/rules.md):

  ACTION... [PROTOCOL] [from PLACE] [to PLACE] [name "TEXT"]    # comment
  ACTION    allow | deny | redirect DEVICE | mark N | capture
            | rate N{pps,kpps,Mpps,kbps,Mbps,Gbps} [burst N] [per source]
  PROTOCOL  tcp | udp | icmp | icmpv6 | sctp | gre | esp | ah | ipip | proto N
  PLACE     any | ADDRESS[/LENGTH] | group NAME | list NAME, optionally with:
            port N[-M][,N[-M]]...

  group NAME ADDRESS[/LENGTH]...
  list NAME file "FILE"      # a prefix on each line, of any number
  include "FILE"

A file may also have inspection rules in Suricata's syntax, alone or among them, or name a
file of them by inspect "FILE" (docs/inspection.md). They see the packets that no
access rule drops; alerts are counted, and listed with flows, their actions are not
taken. --lenient, --vars, --set and --classification are as for filter check.

Rates count in the time of the capture. What rules redirect goes to --to as all that
passes does. --capture stores the packets whose rule says capture.

--patterns reads literals and regular expressions to search for in payloads, one rule per
line, also across the packets of a flow; at most 16 matches of literals per packet are
reported, and each expression once in either direction of a flow:

  "TEXT" ["TEXT"]... [nocase] [name "NAME"]    # comment
  TEXT  3 to 64 bytes; |0d 0a| are hexadecimal, \" \\ \| the characters themselves
  /EXPRESSION/[FLAGS] [name "NAME"]
  EXPRESSION  Perl's, on bytes, without back-references, looking around and atomic groups;
              FLAGS are i, m, s and x. A GPU pays for hundreds (docs/gpu.md)

--routes reads routes, PREFIX via NUMBER, one per line, and counts packets by the
number of the longest prefix that contains their destination.

--engine selects what processes packets: cpu, cuda (an NVIDIA GPU; an error where
none can be used) or auto, which prints what it found and what it uses.

--conversations lists the flows of the most bytes, each with its packets, bytes,
start and duration; --conversations=N lists N of them instead of 20. Starts count
from the first packet of all flows, also of those that are not listed.

--classify lists them with the application protocol that their content shows (never
their port or address alone), the server's name and JA4, and sums up protocols of all flows.
Up to eight payloads each way decide. A million flows of HTTP take 0.9 GB; packets of
flows beyond those are counted in flows_unknown. --eve prints
a line of JSON for every flow, with keys of Suricata's EVE output: timestamp, src_ip,
src_port, dest_ip, dest_port, proto, app_proto ("failed" where nothing was recognised),
protocol (the name of --classify), name, alpn, ja4, rules (access rules, counted from 1),
alerts (list: action, gid, signature_id, rev, signature, category, severity, count; of 16
inspection rules at most), anomalies, flow (pkts_toserver, pkts_toclient, bytes_toserver,
bytes_toclient, start, end, duration_seconds, alerted).

--write stores the packets that pass in a pcap or pcapng file, with their time of
capture; "-" is standard output, and the summary goes to standard error. Packets of
other link types become Ethernet frames.

--rate 2x keeps the gaps of the capture, at half their length; --max-gap 1s shortens
those that then are longer than a second.

--verify compares, for every packet, the engine with the slow reference on every
field, and with an independent decoder on all fields that both parse.

A file that cannot be read is reported, the others are replayed, and the exit code
is 1. It is 1 as well where the device of --to refused packets. Ctrl-C stops and prints the summary.

--json prints one object:
  schema         1
  engine         name, device, ops, backends (list: name, packets, batches, share),
                 redone_packets, fault, calibrations (list: ops, bytes, break_even,
                 break_even_alone, cpu, gpu, text)
  output         null, or device, driver, negotiated, packets, bytes, tx_invalid,
                 mtu, longest, seconds, packets_per_second, bits_per_second
  files          list: path, mode, records (read, cut, unsupported, not_ip, empty,
                 filtered, too_long), error, and the fields of total
  total          packets, bytes, ipv4, ipv6, protocols, sizes, flows, vlan,
                 fragments, options, ip_checksum_errors, l4_checksum_errors,
                 l4_unverified, malformed, truncated, passed, dropped, seconds,
                 mpps, bits_per_second, ns_per_packet, engine_ns_per_packet;
                 packets = passed + the sum of dropped
  rules          list: file, line, name, text, packets, over (packets dropped since
                 they exceed the rate; left out where 0)
  patterns       list: line, name, text, packets, matches
  next_hops      packets by the number of the next hop
  more_matches   packets with more matches than the limit
  matches        with --matches, list: path, packet, line, name, end
  flows_unknown  packets of flows beyond the table's bound of a million
  saved          null, or path, packets, bytes of the file of --write
  captured       the same, of the file of --capture
  conversations  with --conversations: total, others (packets of no listed flow),
                 start (of the first packet of all flows), list:
                 protocol, a, b, packets_ab, packets_ba, bytes_ab, bytes_ba, start,
                 duration_seconds; a sent the first packet; with --classify,
                 application (protocol, name, alpn, ja4, rules) in each, and
                 applications (list: protocol, flows, packets, bytes); with inspection
                 rules that found something in a flow, alerts (as hits, of 16 rules at
                 most), more_alerts (of other rules), anomalies
  expressions    with expressions: expressions, automata, bytes, streams (directions of flows),
                 not_followed, seconds (of the search)
  inspected      with inspection rules: rules, packets, alerts, anomalies, no_flow
                 (alerts of no flow, where flows are listed), hits (list: gid, sid, rev,
                 msg, class, priority, action, alerts)
  stopped        true after Ctrl-C
With --verify instead: schema, packets, skipped, decoded, mismatch_count, mismatches
(list: path, record, field, engine, other, by).`

const replayExamples = `  millrace replay trace.pcap
  millrace replay --rules drop.rules --json *.pcapng
  millrace replay --patterns sigs --matches trace.pcap
  millrace replay --loop 1000 trace.pcap           at full speed, from memory
  millrace replay --to eth1 --rate 2x trace.pcap   at twice the speed of the capture
  millrace replay --to eth1 --rate 1x --max-gap 1s trace.pcap
  millrace replay --conversations=50 trace.pcap
  millrace replay --classify trace.pcap            which protocols, to which servers
  millrace replay --rules local.rules --eve trace.pcap   flows with the alerts in them
  millrace replay --rules web.rules --write web.pcap trace.pcap
  millrace replay --verify *.pcap`

func newReplay(c *console) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:     "replay FILE...",
		Short:   "Replay captures through the packet path",
		Long:    replayLong,
		Example: replayExamples,
		Args:    atLeastOneFile,
	}
	fl := cmd.Flags()
	fl.StringVar(&f.engine, "engine", "cpu", "engine that processes packets: cpu, cuda or auto")
	fl.StringVar(&f.filter, "filter", "", "replay only packets that match the `expression`")
	fl.StringVar(&f.rules, "rules", "", "file of access rules, inspection rules or both")
	f.ruleFlags.add(cmd)
	fl.StringVar(&f.patterns, "patterns", "", "file of literals to search for")
	fl.BoolVar(&f.matches, "matches", false, "list the matches of --patterns")
	fl.StringVar(&f.routes, "routes", "", "file of routes")
	fl.StringVar(&f.to.name, "to", "", "interface to send to, or dpdk:DEVICE, vhost:PATH, virtio:PATH")
	fl.StringVar(&f.to.driver, "driver", "auto", "driver of --to: auto, afxdp, afpacket or tap")
	fl.IntVar(&f.loop, "loop", 1, "times to replay each file")
	fl.StringVar(&f.rate, "rate", "max", "max, 500kpps, 10Gbps, or 2x the capture's speed")
	fl.DurationVar(&f.maxGap, "max-gap", 0, "longest wait between packets at a --rate like 2x (0: no limit)")
	fl.IntVar(&f.conversations, "conversations", 0, "list the flows of the most bytes, this `many`")
	fl.Lookup("conversations").NoOptDefVal = "20"
	fl.IntVar(&f.classify, "classify", 0, "recognise application protocols, and list this `many` flows")
	fl.Lookup("classify").NoOptDefVal = "20"
	fl.BoolVar(&f.eve, "eve", false, "print every flow as a line of JSON, with its application")
	fl.StringVar(&f.write, "write", "", "pcap or pcapng file for the packets that pass")
	fl.StringVar(&f.capture, "capture", "", "pcap or pcapng file for the packets that rules capture")
	fl.Uint64Var(&f.limit, "limit", 0, "stop after this many packets (0: no limit)")
	fl.BoolVar(&f.verify, "verify", false, "compare every packet with the references instead")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	completeWords(cmd, "engine", engineWords...)
	completeWords(cmd, "driver", "auto", "afxdp", "afpacket", "tap")
	complete(cmd, "to", interfaceNames)
	cmd.RunE = command(func(ctx context.Context, args []string) error { return runReplay(ctx, c, &f, args) })
	return cmd
}

func atLeastOneFile(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("no capture file; name one or more, or - for standard input")
	}
	return nil
}

// config returns the configuration that the flags describe.
func (f *replayFlags) config(files []string) (cfg replay.Config, err error) {
	if err := checkEngine(f.engine); err != nil {
		return cfg, err
	}
	if f.matches && (f.patterns == "" || f.verify) {
		return cfg, usage("--matches lists the matches of --patterns: name a file there, and leave --verify out")
	}
	if f.loop < 1 {
		return cfg, usage("--loop %d: say 1 or more", f.loop)
	}
	if f.verify && (f.to.name != "" || f.loop != 1 || f.rate != "max" || f.limit != 0 || f.write != "" || f.capture != "" || f.conversations != 0 || f.classify != 0 || f.eve) {
		return cfg, usage("--verify processes every packet once and sends nothing: leave --to, --loop, --rate, --limit, --write, --capture, --conversations, --classify and --eve out")
	}
	switch {
	case f.verify && f.filter != "":
		return cfg, usage("--verify compares all packets: leave --filter out")
	case f.conversations < 0:
		return cfg, usage("--conversations=%d: say 1 or more", f.conversations)
	case f.eve && (f.json || f.write == "-" || f.matches):
		return cfg, usage("--eve has standard output for itself: leave --json, --write - and --matches out")
	case f.classify < 0:
		return cfg, usage("--classify=%d: say 1 or more", f.classify)
	case (f.write != "" || f.capture != "") && f.loop != 1:
		return cfg, usage("--write and --capture store every packet once: leave --loop out")
	case f.capture != "" && f.rules == "":
		return cfg, usage("--capture stores what rules capture: name a file with --rules")
	case f.capture == "-":
		return cfg, usage("--capture: name a file")
	case f.write == "-" && f.json:
		return cfg, usage("--write - and --json both print to standard output: name a file to write")
	case f.write == "-" && f.matches:
		return cfg, usage("--write - and --matches both print to standard output: name a file to write")
	}
	listed := max(f.conversations, f.classify)
	if f.eve {
		listed = math.MaxInt
	}
	cfg = replay.Config{Files: files, Laps: f.loop, Limit: f.limit, Conversations: listed, Classify: f.classify > 0 || f.eve, Save: f.write, Capture: f.capture}
	if cfg.Rate, err = pcap.ParseRate(f.rate); err != nil {
		return cfg, coded{err, errUsage}
	}
	if cfg.Rate.MaxGap = f.maxGap; f.maxGap < 0 || f.maxGap > 0 && cfg.Rate.Speed == 0 {
		return cfg, usage("--max-gap %v: say a positive time, with a --rate like 2x: other rates keep no gaps", f.maxGap)
	}
	if err := f.readRules(&cfg); err != nil {
		return cfg, err
	}
	if cfg.Patterns, err = readList("patterns", f.patterns, filter.ParsePatterns); err != nil {
		return cfg, err
	}
	if cfg.Routes, err = readList("routes", f.routes, filter.ParseRoutes); err != nil {
		return cfg, err
	}
	return cfg, f.to.check()
}

// readRules reads the file of --rules and those that it names.
func (f *replayFlags) readRules(cfg *replay.Config) error {
	if f.rules == "" {
		return nil
	}
	files, err := f.ruleFlags.read(f.rules)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	if wrong := files.Errors(f.lenient); len(wrong) > 0 {
		return coded{joinWrong(wrong), errConfig}
	}
	for _, a := range files.Access {
		cfg.Rules = a.List
	}
	if len(files.Inspection) == 0 {
		return nil
	}
	if f.verify || f.loop != 1 {
		return usage("%s has inspection rules, which see every packet once: leave --loop and --verify out", files.Inspection[0].Name)
	}
	cfg.Inspect, err = files.Compile()
	return err
}

// joinWrong returns the first errors of rules as one.
func joinWrong(wrong []error) error {
	const most = 20
	all := wrong[:min(len(wrong), most)]
	if n := len(wrong) - most; n > 0 {
		all = append(slices.Clip(all), fmt.Errorf("%d more; millrace filter check lists all", n))
	}
	return errors.Join(all...)
}

// readList reads a file in the language of parse; "" is no file.
func readList[T any](what, path string, parse func(name, text string) (*T, error)) (*T, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	l, err := parse(path, string(text))
	if err != nil {
		return nil, coded{err, errConfig}
	}
	return l, nil
}

func runReplay(ctx context.Context, c *console, f *replayFlags, files []string) error {
	cfg, err := f.config(files)
	if err != nil {
		return err
	}
	engines, err := openEngines(c, f.engine)
	if err != nil {
		return err
	}
	defer closing(c, engines)
	cfg.Engine = engines.Open
	cfg.Expressions = func(set *expression.Set) (replay.ExpressionSearch, error) { return engines.OpenExpressions(set) }
	var kept *linkFilters
	if f.filter != "" {
		if kept, err = newLinkFilters(f.filter, exprFlags{}); err != nil {
			return err
		}
		cfg.Keep = kept.keep
	}
	if f.verify {
		return runVerify(ctx, c, f.json, cfg)
	}
	if f.to.name != "" {
		out, pool, closeAll, err := f.to.openSender(c)
		if err != nil {
			return err
		}
		defer closeAll()
		cfg.Out, cfg.Pool = out, pool
	}
	summary := c
	if f.write == "-" || f.eve { // standard output has the packets, or the lines
		aside := *c
		aside.out = c.err
		summary = &aside
	}
	found := matchList{c: summary, asJSON: f.json}
	rep, err := f.replay(ctx, summary, cfg, &found)
	if rep == nil {
		return err
	}
	if kept != nil {
		err = errors.Join(err, kept.err)
	}
	if f.eve {
		err = errors.Join(err, replay.WriteFlows(c.out, rep.Conversations))
		rep.Conversations = nil
	}
	rep.Matches = found.list
	return f.report(summary, rep, err)
}

// replay replays the files behind a progress bar, and collects or prints matches.
func (f *replayFlags) replay(ctx context.Context, c *console, cfg replay.Config, found *matchList) (*replay.Report, error) {
	bar := newBar(c, cfg)
	cfg.OnProgress = bar.show
	if f.matches {
		cfg.OnMatch = found.add
		bar.end() // it would be drawn between the lines of the list
		cfg.OnProgress = nil
	}
	rep, err := replay.Run(ctx, cfg)
	bar.end()
	return rep, err
}

// report prints the summary and the errors of files and of the output device. It returns errShown where the exit status alone is
// left to report.
func (f *replayFlags) report(c *console, rep *replay.Report, err error) error {
	switch {
	case f.json:
		err = errors.Join(err, c.json(rep))
	case rep.Total.Packets > 0 || !allUnreadable(rep.Files): // a summary of zeros would hide the errors
		showReplay(c, rep)
	}
	failed := false
	for i := range rep.Files {
		if e := unreadable(&rep.Files[i]); e != nil {
			failed = true
			c.complain(remedied(e))
		}
	}
	if e := unsent(rep.Output); e != nil {
		failed = true
		c.complain(e)
	}
	if err == nil && failed {
		return errShown
	}
	return err
}

// matchList prints matches as they come, or keeps them for JSON.
type matchList struct {
	c      *console
	asJSON bool
	list   []replay.PatternMatch
}

// mostMatches bounds the matches that JSON lists; all are counted.
const mostMatches = 1_000_000

func (m *matchList) add(f replay.PatternMatch) {
	if m.asJSON {
		if len(m.list) < mostMatches {
			m.list = append(m.list, f)
		}
		return
	}
	what := fmt.Sprintf("pattern %d", f.Line)
	switch {
	case f.Line == 0:
		what = "more"
	case f.Name != "":
		what += " " + strconv.Quote(f.Name)
	}
	m.c.printf("%s: packet %d, to byte %d: %s\n", f.Path, f.Packet, f.End, what)
}

func runVerify(ctx context.Context, c *console, asJSON bool, cfg replay.Config) error {
	v, err := replay.Verify(ctx, cfg)
	if v == nil {
		return err
	}
	if asJSON {
		if e := c.json(v); e != nil {
			return e
		}
	} else {
		showVerification(c, v)
	}
	if err != nil {
		c.complain(remedied(err))
	}
	if err != nil || v.Count > 0 {
		return errShown
	}
	return nil
}
