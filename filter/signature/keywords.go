package signature

import (
	"fmt"
	"strings"
)

// keyword describes how an option is parsed.
type keyword struct {
	read  func(p *ruleParser, value string) error
	needs bool // it has a value
	bare  bool // it has none
}

// keywords are the options that are implemented, known those that Suricata has beside them.
var keywords map[string]keyword

var known = map[string]bool{}

func init() { // not an initialiser: the readers use the tables themselves
	keywords = map[string]keyword{}
	value := func(names string, read func(p *ruleParser, v string) error) {
		for n := range strings.FieldsSeq(names) {
			keywords[n] = keyword{read: read, needs: true}
		}
	}
	bare := func(names string, read func(p *ruleParser) error) {
		for n := range strings.FieldsSeq(names) {
			keywords[n] = keyword{read: func(p *ruleParser, _ string) error { return read(p) }, bare: true}
		}
	}
	metaKeywords(value, bare)
	contentKeywords(value, bare)
	bufferKeywords(bare)
	numberKeywords(value)
	packetKeywords(value, bare)
	stateKeywords(value, bare)
	for k := range strings.FieldsSeq(others) {
		if _, ok := keywords[k]; !ok {
			known[k] = true
		}
	}
}

type (
	addValue = func(names string, read func(p *ruleParser, v string) error)
	addBare  = func(names string, read func(p *ruleParser) error)
)

// metaKeywords are those that say something about the rule and nothing about packets. tag and target say what
// is recorded beside an alert.
func metaKeywords(value addValue, bare addBare) {
	value("msg", func(p *ruleParser, v string) error {
		text, _, _, err := unquoted(v)
		p.rule.Msg = unescape(text)
		return err
	})
	number32 := func(to func(p *ruleParser) *uint32) func(p *ruleParser, v string) error {
		return func(p *ruleParser, v string) error {
			n, err := number(v)
			if err == nil && n >= 1<<32 {
				err = fmt.Errorf("%s is more than 32 bits", v)
			}
			*to(p) = uint32(n)
			return err
		}
	}
	value("sid", number32(func(p *ruleParser) *uint32 { return &p.rule.SID }))
	value("gid", number32(func(p *ruleParser) *uint32 { return &p.rule.GID }))
	value("rev", number32(func(p *ruleParser) *uint32 { return &p.rule.Rev }))
	value("classtype", func(p *ruleParser, v string) error {
		p.rule.Class = v
		if _, ok := p.env.classes[v]; !ok && len(p.env.classes) > 0 {
			return fmt.Errorf("class %q is not in the classification", v)
		}
		return nil
	})
	value("priority", func(p *ruleParser, v string) error {
		n, err := number(v)
		if err == nil && (n < 1 || n > 255) {
			err = fmt.Errorf("a priority is 1 to 255, not %d", n)
		}
		p.rule.Priority = int(n)
		return err
	})
	value("reference metadata tag target", func(*ruleParser, string) error { return nil })
	value("dataset", (*ruleParser).dataset)
	value("app-layer-protocol", (*ruleParser).appTest)
	bare("noalert", func(p *ruleParser) error { p.rule.NoAlert = true; return nil })
	bare("ftpbounce", func(p *ruleParser) error { p.rule.FTPBounce = true; return nil })
}

// unescape takes the backslashes from \; \" \\ and \:.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// others are keywords of Suricata 7 that are not implemented.
const others = `asn1 app-layer-event ftp.reply ftp.completion_code ftp.mode ftp.dynamic_port hostbits
	lua luajit geoip iprep datarep filemagic filestore filemd5 filesha1 filesha256 fileext filename filesize file.magic
	frame http.request_header http.response_header http2.header_name modbus dnp3_func dnp3_data cip_service enip_command
	dce_iface dce_opnum dce_stub_data smb.ntlmssp_user smb.ntlmssp_domain smb.version ssh.hassh ssh.hassh.server ssh.hassh.string
	snmp.version snmp.community krb5_cname krb5_sname krb5_err_code krb5_msg_type rdp tls_store
	tls.random tls.store tls.cert_chain_len tls.subject tls.issuerdn ssl_version ssl_state rpc tos replace decode-event
	stream-event engine-event dns.opcode dns.rcode dns.rrtype dns.answer.name ike.init_spi rfb.secresult
	mqtt.connect.protocol_string template2 ipv4.hdr ipv6.hdr tcp.hdr udp.hdr icmpv4.hdr icmpv6.hdr
	tcp.mss icmpv6.mtu l3_proto bypass prefilter requires config sameip geneve vxlan mpls nfq_set_mark
	email.from email.subject http.host.list ja4s flow.age flow.bytes tls.version`
