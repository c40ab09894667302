// Package coraza has Coraza evaluate requests and responses: a web application firewall with ModSecurity's language of rules. OWASP's Core Rule
// Set is embedded.
package coraza

import (
	"errors"
	"fmt"
	"strings"

	"github.com/corazawaf/coraza/v3"
	"github.com/corazawaf/coraza/v3/experimental"
	"github.com/corazawaf/coraza/v3/types"

	"github.com/millrace/millrace/l7/waf"
	"github.com/millrace/millrace/semantics"
)

// maxContent bounds what Coraza may be given at once, whatever a file of rules says.
const maxContent = 64 << 20

// Compile is a waf.Compiler.
func Compile(s waf.Settings) (waf.Ruleset, error) {
	r := newRoot(s.Check)
	files, err := r.expand(s.Files)
	if err != nil {
		return nil, err
	}
	cfg := coraza.NewWAFConfig().WithRootFS(r).WithDirectives(beginning(s))
	for _, f := range files {
		for _, d := range f.directives {
			cfg = cfg.WithDirectives(d)
		}
	}
	cfg = cfg.WithDirectives(ending(s))
	w, err := coraza.NewWAF(cfg)
	if err != nil {
		return nil, locate(r, files, err)
	}
	return &ruleset{waf: w, settings: s}, nil
}

// beginning returns the directives before all files, which may say otherwise: rules that ask for content have it.
func beginning(s waf.Settings) string {
	text := "SecRequestBodyAccess On\n"
	if s.Responses {
		text += "SecResponseBodyAccess On\nSecResponseBodyMimeType text/plain text/html text/xml\n"
	}
	return text
}

// ending returns the directives that follow all files: what the configuration decides is not theirs to decide. Content stays in memory.
func ending(s waf.Settings) string {
	mode := "DetectionOnly"
	if s.Mode == waf.Prevent {
		mode = "On"
	}
	without := ""
	for _, r := range s.Without {
		without += fmt.Sprintf("SecRuleRemoveById %d-%d\n", r.First, r.Last)
	}
	return without + fmt.Sprintf("SecRuleEngine %s\nSecRequestBodyLimit %d\nSecRequestBodyInMemoryLimit %d\nSecRequestBodyLimitAction ProcessPartial\n"+
		"SecResponseBodyLimit %d\nSecResponseBodyLimitAction ProcessPartial\n", mode, maxContent, maxContent, maxContent)
}

// ruleset implements waf.Ruleset.
type ruleset struct {
	waf      coraza.WAF
	settings waf.Settings
}

// Begin implements waf.Ruleset.
func (r *ruleset) Begin() waf.Transaction {
	return &transaction{tx: r.waf.NewTransaction()}
}

// Close implements waf.Ruleset.
func (r *ruleset) Close() error {
	if c, ok := r.waf.(experimental.WAFCloser); ok {
		return c.Close()
	}
	return nil
}

// transaction implements waf.Transaction.
type transaction struct {
	tx      types.Transaction
	counted int   // of the matched rules
	matched []int // those of them that log
}

// Request implements waf.Transaction.
func (t *transaction) Request(r *waf.Request, ends bool) waf.Verdict {
	tx := t.tx
	tx.ProcessConnection(r.Client.Addr().Unmap().String(), int(r.Client.Port()), r.Server.Addr().Unmap().String(), int(r.Server.Port()))
	tx.ProcessURI(r.Target, r.Method, r.Protocol)
	addFields(tx.AddRequestHeader, r.Fields)
	if r.Host != "" {
		tx.SetServerName(r.Host)
	}
	if v, denied := t.verdict(tx.ProcessRequestHeaders(), nil); denied {
		return v
	}
	if ends {
		v, _ := t.verdict(tx.ProcessRequestBody())
		return v
	}
	v, _ := t.verdict(nil, nil)
	v.Content = tx.IsRequestBodyAccessible()
	return v
}

// Content implements waf.Transaction.
func (t *transaction) Content(p []byte) waf.Verdict {
	in, _, err := t.tx.WriteRequestBody(p)
	if v, denied := t.verdict(in, err); denied {
		return v
	}
	v, _ := t.verdict(t.tx.ProcessRequestBody())
	return v
}

// Response implements waf.Transaction.
func (t *transaction) Response(r *waf.Response, ends bool) waf.Verdict {
	tx := t.tx
	addFields(tx.AddResponseHeader, r.Fields)
	if v, denied := t.verdict(tx.ProcessResponseHeaders(r.Status, r.Protocol), nil); denied {
		return v
	}
	if !ends && tx.IsResponseBodyAccessible() && tx.IsResponseBodyProcessable() {
		v, _ := t.verdict(nil, nil)
		v.Content = true
		return v
	}
	v, _ := t.verdict(tx.ProcessResponseBody())
	return v
}

// ResponseContent implements waf.Transaction.
func (t *transaction) ResponseContent(p []byte) waf.Verdict {
	in, _, err := t.tx.WriteResponseBody(p)
	if v, denied := t.verdict(in, err); denied {
		return v
	}
	v, _ := t.verdict(t.tx.ProcessResponseBody())
	return v
}

// Close implements waf.Transaction.
func (t *transaction) Close() []int {
	t.tx.ProcessLogging()
	v, _ := t.verdict(nil, nil)
	_ = t.tx.Close() // of temporary files, of which there are none
	return v.Matched
}

func addFields(add func(name, value string), fields []semantics.Field) {
	for i := range fields {
		add(fields[i].Name, fields[i].Value)
	}
}

// verdict returns what an interruption means, and whether there is one. An error of the engine panics, as waf.Firewall contains that: nothing
// may pass for the reason that it could not be evaluated.
func (t *transaction) verdict(in *types.Interruption, err error) (v waf.Verdict, denied bool) {
	if err != nil {
		panic(err)
	}
	matched := t.tx.MatchedRules()
	for _, m := range matched[t.counted:] {
		if logs(m) {
			t.matched = append(t.matched, m.Rule().ID())
		}
	}
	t.counted = len(matched)
	v.Matched = t.matched[:len(t.matched):len(t.matched)]
	if in == nil {
		return v, false
	}
	v.Rule, v.Status = in.RuleID, 403
	if in.Action == "deny" && in.Status >= 400 && in.Status < 600 {
		v.Status = in.Status
	}
	return v, true
}

// logs reports whether a match is one to tell of. Rules that count and choose have no message.
func logs(m types.MatchedRule) bool {
	l, ok := m.(interface{ Log() bool })
	return (!ok || l.Log()) && m.Message() != ""
}

// locate returns the error of rules with the place of the directive that has it.
func locate(r *root, files []ruleFile, err error) error {
	text := lastDirective(r, files)
	message := err.Error()
	for _, noise := range []string{"invalid WAF config from string: ", "invalid WAF config from file: ", "failed to parse string: "} {
		message = strings.ReplaceAll(message, noise, "")
	}
	fail := &waf.FileError{Message: message, Hint: "the language is ModSecurity's, as Coraza has it: https://coraza.io/docs/seclang/"}
	for i := range files {
		if files[i].find(r, text, fail) {
			return fail
		}
	}
	fail.File = files[0].file
	return fail
}

var errUnfinished = errors.New("the last directive is not complete: a line ends with \\, or a list in backticks lacks its end")
