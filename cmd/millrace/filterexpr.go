package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/expr"
	"github.com/millrace/millrace/internal/sysnames"
)

const filterExprLong = `Compile a packet filter expression, in the syntax of pcap-filter(7), and show the
result: by default the tree of tests that Millrace evaluates, in which
pkt[OFFSET:SIZE] are bytes of the packet.

--cbpf prints classic BPF as tcpdump -d does, --code as tcpdump -dd does, in C, and
--xdp prints eBPF for XDP, which returns XDP_PASS for packets that match and
XDP_DROP for others.

The expression means what it means to libpcap without its optimizer: tests run from
left to right, and one that looks beyond the end of a packet rejects it.`

func newFilterExpr(c *console) *cobra.Command {
	var o exprFlags
	var cbpf, code, xdp bool
	cmd := &cobra.Command{
		Use:   "expr EXPRESSION",
		Short: "Compile a packet filter expression",
		Long:  filterExprLong,
		Example: `  millrace filter expr 'tcp port 80 and not net 10.0.0.0/8'
  millrace filter expr --cbpf --link RAW 'udp port 53'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("filter expr takes one argument, the expression in quotes")
			}
			return nil
		},
	}
	o.add(cmd)
	cmd.Flags().BoolVar(&cbpf, "cbpf", false, "print classic BPF")
	cmd.Flags().BoolVar(&code, "code", false, "print classic BPF as C")
	cmd.Flags().BoolVar(&xdp, "xdp", false, "print eBPF for XDP")
	cmd.MarkFlagsMutuallyExclusive("cbpf", "code", "xdp")
	cmd.RunE = command(func(_ context.Context, args []string) error {
		link, ok := expr.ParseLinkType(o.link)
		if !ok {
			return usage("--link: unknown link type %q; it is a name of tcpdump -y such as EN10MB, RAW or LINUX_SLL2", o.link)
		}
		f, err := o.compile(args[0], link)
		if err != nil {
			return err
		}
		text, err := exprText(f, cbpf, code, xdp)
		if err == nil {
			c.printf("%s", text)
		}
		return err
	})
	return cmd
}

// exprText returns a filter in the form that flags ask for.
func exprText(f *expr.Filter, cbpf, code, xdp bool) (string, error) {
	if xdp {
		const xdpDrop, xdpPass = 1, 2
		prog, err := f.XDP(xdpPass, xdpDrop)
		return expr.DisassembleXDP(prog), err
	}
	if !cbpf && !code {
		return f.Tree(), nil
	}
	prog, err := f.CBPF()
	if err != nil || cbpf {
		return expr.Disassemble(prog), err
	}
	text := ""
	for _, in := range prog {
		text += fmt.Sprintf("{ %#x, %d, %d, 0x%08x },\n", in.Op, in.Jt, in.Jf, in.K)
	}
	return text, nil
}

// exprFlags say how an expression is compiled.
type exprFlags struct {
	link, netmask string
	kernel        bool
}

func (o *exprFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&o.link, "link", "EN10MB", "link-layer header `type`")
	fl.BoolVar(&o.kernel, "kernel", false, "for a socket of Linux, with the metadata of its packets")
	o.addNetmask(cmd)
}

func (o *exprFlags) addNetmask(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.netmask, "netmask", "", "IPv4 `mask` of the network, for \"ip broadcast\"")
}

// compile compiles a text. An error shows where it is.
func (o *exprFlags) compile(text string, link expr.LinkType) (*expr.Filter, error) {
	opts := expr.Options{Kernel: o.kernel, Names: sysnames.Names()}
	if o.kernel {
		opts.Source = expr.FromHost
	}
	if o.netmask != "" {
		var err error
		if opts.Netmask, err = netip.ParseAddr(o.netmask); err != nil || !opts.Netmask.Is4() {
			return nil, usage("--netmask: %q is not an IPv4 mask", o.netmask)
		}
	}
	f, err := expr.Compile(text, link, opts)
	var e *expr.Error
	if errors.As(err, &e) {
		return nil, usage("%v\n  %s", err, indent(e.Excerpt()))
	}
	return f, err
}

// indent moves the lines behind the first one.
func indent(s string) string {
	out := ""
	for _, r := range s {
		out += string(r)
		if r == '\n' {
			out += "  "
		}
	}
	return out
}

// linkFilters compiles an expression for each link type that occurs.
type linkFilters struct {
	flags exprFlags
	text  string
	of    map[capture.LinkType]*expr.Filter
	err   error // of the first type for which the expression has no meaning
}

// newLinkFilters checks the text for Ethernet.
func newLinkFilters(text string, flags exprFlags) (*linkFilters, error) {
	f, err := flags.compile(text, expr.LinkEthernet)
	if err != nil {
		return nil, err
	}
	return &linkFilters{flags: flags, text: text, of: map[capture.LinkType]*expr.Filter{capture.LinkTypeEthernet: f}}, nil
}

// keep is match for records of captures.
func (l *linkFilters) keep(rec *capture.Record) bool {
	return l.match(rec.LinkType, rec.Data, max(rec.Len, len(rec.Data)))
}

// match reports whether a record matches. A link type for which the text does not compile matches nothing.
func (l *linkFilters) match(t capture.LinkType, data []byte, length int) bool {
	f, ok := l.of[t]
	if !ok {
		var err error
		if f, err = l.flags.compile(l.text, expr.FromCapture(uint32(t))); err != nil && l.err == nil {
			l.err = err
		}
		l.of[t] = f
	}
	return f != nil && f.Match(data, length)
}

// ExprMatches is the JSON form of filter match.
type ExprMatches struct {
	Schema     int         `json:"schema"`
	Expression string      `json:"expression"`
	Packets    uint64      `json:"packets"`
	Matches    uint64      `json:"matches"`
	Files      []ExprMatch `json:"files"`
}

// ExprMatch counts the packets of a file.
type ExprMatch struct {
	Path    string `json:"path"`
	Packets uint64 `json:"packets"`
	Matches uint64 `json:"matches"`
}

const filterMatchLong = `Count the packets of captures that match an expression in the syntax of
pcap-filter(7). --write stores them in a pcap or pcapng file; all must then have
one link type.

--json prints one object:
  schema      1
  expression  the expression
  packets, matches   of all files
  files       list: path, packets, matches`

func newFilterMatch(c *console) *cobra.Command {
	var o exprFlags
	var write string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "match EXPRESSION FILE...",
		Short: "Count or write the packets of captures that an expression matches",
		Long:  filterMatchLong,
		Example: `  millrace filter match 'tcp[tcpflags] & tcp-syn != 0' trace.pcap
  millrace filter match --write dns.pcap 'port 53' *.pcapng`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage("filter match takes an expression, in quotes, and the captures")
			}
			return nil
		},
	}
	o.addNetmask(cmd)
	cmd.Flags().StringVar(&write, "write", "", "`file` for the packets that match")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = command(func(ctx context.Context, args []string) error {
		m := &matcher{filters: &linkFilters{flags: o, text: args[0], of: map[capture.LinkType]*expr.Filter{}}, path: write, out: ExprMatches{Schema: 1, Expression: args[0], Files: []ExprMatch{}}}
		err := errors.Join(m.files(ctx, args[1:]), m.close())
		if err != nil {
			return err
		}
		if asJSON {
			return c.json(m.out)
		}
		for _, f := range m.out.Files {
			c.printf("%s: %d of %s\n", f.Path, f.Matches, count(int(f.Packets), "packet", "packets"))
		}
		return nil
	})
	return cmd
}

// matcher runs an expression over captures.
type matcher struct {
	filters *linkFilters
	path    string // of the capture to write, or ""
	writer  *capture.Writer
	link    capture.LinkType // of writer
	out     ExprMatches
}

func (m *matcher) files(ctx context.Context, paths []string) error {
	for _, path := range paths {
		if err := m.file(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

func (m *matcher) file(ctx context.Context, path string) error {
	r, err := capture.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	sum := ExprMatch{Path: path}
	for ctx.Err() == nil {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		sum.Packets++
		if !m.filters.keep(rec) {
			if m.filters.err != nil {
				return m.filters.err
			}
			continue
		}
		sum.Matches++
		if err := m.save(rec); err != nil {
			return err
		}
	}
	m.out.Files = append(m.out.Files, sum)
	m.out.Packets += sum.Packets
	m.out.Matches += sum.Matches
	return ctx.Err()
}

// save writes a packet, and creates the file with the link type of the first.
func (m *matcher) save(rec *capture.Record) (err error) {
	if m.path == "" {
		return nil
	}
	if m.writer == nil {
		m.link = rec.LinkType
		m.writer, err = capture.Create(m.path, capture.WriterConfig{
			Interfaces: []capture.Interface{{LinkType: rec.LinkType}}, Application: "millrace filter match",
		})
		if err != nil {
			return err
		}
	}
	if rec.LinkType != m.link {
		return fmt.Errorf("%s: packets of link types %v and %v cannot be in one capture", m.path, m.link, rec.LinkType)
	}
	one := *rec
	one.Interface, one.Meta = 0, capture.Meta{}
	return m.writer.Write(&one)
}

func (m *matcher) close() error {
	if m.writer == nil {
		return nil
	}
	return m.writer.Close()
}
