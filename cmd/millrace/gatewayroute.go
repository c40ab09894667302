package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/semantics"
)

const routeLong = `Say which rule a request matches: the listener, the route, the rule and its pools, and
which rules of the same host and path come before it, with the first condition of each
that does not hold. Nothing is sent. A key that refuses the request is named, as
sources or maintenance, and so is what may refuse it, as a rate limit.

The configuration is that of the running gateway, or with -c that of a file ("-" is
standard input). The listener is the one of the URL's scheme and port, or the one of
--listener. URLs with tls and tcp stand for connections that are passed through.

Exit code 0 where a rule matches, 1 where none does (the gateway answers 404, or
closes the connection) or the request is refused, 2 for a wrong command line, 3 for a wrong configuration file.

--json prints one object: schema, listener, host, path, tried (list of rule, missing),
route, rule, match, pools (list of name, percent), status, refused (status, by),
limits, rules, other_host, listeners.`

func newGatewayRoute(c *console) *cobra.Command {
	var q l7control.Query
	var file, client string
	var headers []string
	cmd := &cobra.Command{
		Use:   "route URL",
		Short: "Say which rule a request matches",
		Long:  routeLong,
		Example: `  millrace gateway route https://shop.example.org/api -c gateway.yaml
  millrace gateway route https://shop.example.org/api --method POST --header 'x-version: 2'
  millrace gateway route tls://mail.example.org --json | jq -r .route`,
		Args:              exactly("URL"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	newControl(c, cmd, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		q.URL = args[0]
		if err := completeQuery(&q, client, headers); err != nil {
			return err
		}
		e, err := explain(ctx, c, g, file, q)
		if err != nil {
			return err
		}
		if f.json {
			err = c.jsonLine(e)
		} else {
			showRoute(c, e)
		}
		if e.Route == "" || e.Refused != nil {
			return errors.Join(err, errShown)
		}
		return err
	})
	fl := cmd.Flags()
	fl.StringVarP(&file, "config", "c", "", "configuration file instead of the running gateway; - is standard input")
	fl.StringVarP(&q.Method, "method", "X", "GET", "method")
	fl.StringArrayVarP(&headers, "header", "H", nil, "field of the request, `NAME: VALUE`; may be repeated")
	fl.StringVar(&client, "client", "", "address of the client")
	fl.StringVar(&q.SNI, "sni", "", "server name of TLS (default: the URL's host)")
	fl.StringVar(&q.JA4, "ja4", "", "fingerprint JA4 of the client's hello")
	fl.StringVar(&q.Listener, "listener", "", "listener (default: that of the URL's scheme and port)")
	completeFiles(cmd, "config", "yaml", "yml")
	completeWords(cmd, "method", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT")
	for _, flag := range []string{"header", "client", "sni", "ja4", "listener"} {
		complete(cmd, flag, cobra.NoFileCompletions)
	}
	return cmd
}

// completeQuery reads the flags of a query.
func completeQuery(q *l7control.Query, client string, headers []string) (err error) {
	if client != "" {
		if q.Client, err = netip.ParseAddr(client); err != nil {
			return usage("--client %q: say an address", client)
		}
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || !semantics.IsToken(name) {
			return usage("--header %q: say a name, a colon and a value", h)
		}
		q.Headers = append(q.Headers, l7control.Field{Name: strings.ToLower(name), Value: strings.TrimSpace(value)})
	}
	return nil
}

// explain asks the running gateway, or looks into a file.
func explain(ctx context.Context, c *console, g *admin.Client, file string, q l7control.Query) (*l7control.Explanation, error) {
	if file == "" {
		e, err := g.Route(ctx, q)
		if bad := new(admin.Error); errors.As(err, &bad) && bad.Code == http.StatusBadRequest {
			return nil, coded{err, errUsage}
		}
		return e, err
	}
	cfg, err := loadGateway(c, file)
	if err != nil {
		return nil, configured(err, file)
	}
	e, err := l7control.Explain(cfg, q)
	if errors.Is(err, l7control.ErrQuery) {
		return nil, coded{err, errUsage}
	}
	return e, err
}

// showRoute prints the way of a request.
func showRoute(c *console, e *l7control.Explanation) {
	c.line("listener", "%s", e.Listener)
	c.line("request", "%s%s", e.Host, e.Path)
	for _, t := range e.Tried {
		c.line("not", "%s: %s", t.Rule, c.paint(yellow, t.Missing))
	}
	defer showRefusal(c, e)
	if e.Route == "" {
		why := "no rule matches"
		switch {
		case e.Rules == 0:
			why = "the listener has no rule"
		case e.OtherHost:
			why = fmt.Sprintf("none of its %d rules is for the host", e.Rules)
		case len(e.Tried) == 0:
			why = fmt.Sprintf("none of its %d rules is for the host and the path", e.Rules)
		}
		c.line("rule", "%s", c.paint(red, why))
		return
	}
	rule := e.Route
	if e.Rule != "" {
		rule += "/" + e.Rule
	}
	if e.Match > 0 {
		rule += fmt.Sprintf(", match %d", e.Match)
	}
	c.line("rule", "%s", c.paint(bold, rule))
	if e.Status > 0 {
		c.line("answer", "%d", e.Status)
	}
	for _, p := range e.Pools {
		c.line("pool", "%s, %.4g %%", p.Name, p.Percent)
	}
}

// showRefusal prints what refuses a request, and what may.
func showRefusal(c *console, e *l7control.Explanation) {
	switch r := e.Refused; {
	case r == nil:
	case r.Status == 0:
		c.line("refused", "%s", c.paint(red, "the connection ends, by "+r.By))
	default:
		c.line("refused", "%s", c.paint(red, fmt.Sprintf("%d, by %s", r.Status, r.By)))
	}
	for _, l := range e.Limits {
		c.line("limit", "%s", l)
	}
}
