package appid

import "bytes"

// smtp is a server's greeting with the word SMTP, or a client's EHLO after any (RFC 5321, 4.2 and 4.1.1.1).
func smtp(v *view) verdict {
	switch {
	case v.command("EHLO", "HELO", "LHLO"):
		return is(v.replies == 0 || v.other.head[0] == '2')
	case v.code("220") && (v.containsFold("SMTP") || v.contains("Postfix") || v.contains("Exim")) && !v.containsFold("FTP "):
		return yes
	case v.code("250") && v.contains("PIPELINING"):
		return yes
	case v.command("MAIL FROM:", "RCPT TO:"):
		return yes
	}
	return maybe
}

// ftp is a greeting and a command, or its own commands (RFC 959, 4).
func ftp(v *view) verdict {
	switch {
	case v.code("220") && v.containsFold("FTP") && !v.containsFold("SMTP"):
		return yes
	case v.code("331", "230", "227", "229"):
		return perhaps(v.nth > 0 || v.port(21))
	case v.command("USER", "AUTH TLS", "AUTH SSL", "FEAT", "PASV", "EPSV", "TYPE I", "TYPE A", "CWD", "SYST"):
		return perhaps(v.port(21) && v.other.head[0] == '2' || v.command("PASV", "EPSV", "FEAT", "AUTH TLS",
			"AUTH SSL") && v.other.head[0] == '2' && v.other.head[1] == '2')
	}
	return maybe
}

func pop3(v *view) verdict {
	switch {
	case v.has("+OK"):
		return perhaps(v.port(110) || v.contains("POP3") || v.nth > 0 && (v.other.is("CAPA") || v.other.is("USER") ||
			v.other.is("STLS")))
	case v.command("CAPA", "STLS", "APOP", "UIDL", "STAT", "AUTH", "USER"):
		return perhaps(v.other.is("+OK"))
	}
	return maybe
}

// imap is the greeting, or a tagged command (RFC 9051, 7.1.1 and 2.2.1).
func imap(v *view) verdict {
	switch {
	case v.hasAny("* OK", "* PREAUTH", "* BYE"):
		return perhaps(v.contains("IMAP") || v.port(143))
	case v.other.is("* OK"):
		return perhaps(v.contains(" CAPABILITY") || v.contains(" LOGIN ") || v.contains(" STARTTLS") || v.contains(" ID "))
	}
	return maybe
}

func irc(v *view) verdict {
	switch {
	case v.hasAny("NICK ", "PASS ", "CAP LS", "CAP REQ"):
		return perhaps(v.nth > 0 && v.mine.is("USER ") || v.contains("\nUSER ") || v.contains("\nNICK ") || v.has("CAP "))
	case v.has("USER "):
		return perhaps(v.contains(" :") && (v.contains("\nNICK ") || v.nth > 0 && (v.mine.is("NICK ") || v.mine.is("CAP "))))
	case v.has(":"):
		return perhaps(v.contains(" NOTICE ") || v.contains(" 001 ") || v.contains(" PRIVMSG ") || v.contains(" JOIN "))
	case v.has("NOTICE AUTH"):
		return yes
	}
	return maybe
}

// nntp is a server's greeting with the name of the protocol, or NNRP as INN's server for readers calls it, or a command
// after any greeting (RFC 3977, 5.1).
func nntp(v *view) verdict {
	if v.code("200", "201") {
		return perhaps(v.contains("NNTP") || v.contains("NNRP") || v.port(119) && v.nth == 0)
	}
	return perhaps(v.command("MODE READER", "GROUP", "ARTICLE", "XOVER", "LIST OVERVIEW.FMT") && v.other.is("20"))
}

// telnet begins with options (RFC 854): IAC, WILL to DONT, and a known option, more than once or at the usual port.
func telnet(v *view) verdict {
	n := 0
	for at := 0; at+3 <= len(v.p) && v.p[at] == 255 && v.p[at+1] >= 251 && v.p[at+1] != 255 && v.p[at+2] < 64; at += 3 {
		n++
	}
	return is(n >= 2 || n == 1 && (len(v.p) == 3 || v.port(23)))
}

func ssh(v *view) verdict { return is(v.hasAny("SSH-2.0-", "SSH-1.99-", "SSH-1.5-")) }

// rdp is a connection request or confirm of X.224 in a TPKT (MS-RDPBCGR, 2.2.1.1), with a cookie or a negotiation.
func rdp(v *view) verdict {
	if !v.tpkt() {
		return no
	}
	switch v.u8(5) {
	case 0xe0:
		return is(v.contains("Cookie: mstshash=") || v.u8(11) == 1 && v.le16(13) == 8 && len(v.p) == 19 ||
			v.port(3389) && len(v.p) == 11)
	case 0xd0:
		return is(v.u8(11) >= 2 && v.u8(11) <= 3 && v.le16(13) == 8 || v.port(3389) && len(v.p) == 11)
	}
	return no
}

// tpkt reports whether there is a TPKT with X.224 in it (RFC 1006, 6).
func (v *view) tpkt() bool {
	return v.u8(0) == 3 && v.u8(1) == 0 && v.u16(2) >= 7 && v.u16(2) <= 8192 && v.u8(4) <= v.u16(2)-5 && v.u8(4) >= 2
}

func vnc(v *view) verdict { return is(v.has("RFB 00") && v.u8(11) == '\n' && v.u8(7) == '.') }

// x11 is a connection setup, in either byte order, with or without authorisation.
func x11(v *view) verdict {
	if v.nth > 0 || len(v.p) < 12 || v.u8(1) != 0 {
		return no
	}
	if v.p[0] == 'l' {
		return is(v.le16(2) == 11 && v.le16(4) == 0 && (v.le16(6) == 0 || v.contains("MIT-MAGIC-COOKIE-1")))
	}
	return is(v.u16(2) == 11 && v.u16(4) == 0 && (v.u16(6) == 0 || v.contains("MIT-MAGIC-COOKIE-1")))
}

func teamViewer(v *view) verdict {
	if v.u16(0) == 0x1724 || v.u16(0) == 0x1130 {
		return perhaps(v.u8(2) >= 0x0a && v.u8(2) <= 0x60 && (v.port(5938) || v.nth > 0 &&
			v.mine.head[0] == v.p[0] && v.mine.head[1] == v.p[1]))
	}
	return no
}

func teamViewerUDP(v *view) verdict { return is(len(v.p) > 20 && v.p[0] == 0 && v.u16(11) == 0x1724) }

func citrix(v *view) verdict { return is(v.has("\x7f\x7fICA\x00") || v.has("\x1aCGP/01")) }

// rlogin is the client's first message: four strings that end with zeros, the first of them empty (RFC 1282).
func rlogin(v *view) verdict {
	return is(v.port(513) && v.nth == 0 && !v.reply && v.u8(0) == 0 && len(v.p) > 6 && v.p[len(v.p)-1] == 0 &&
		bytes.Count(v.p, []byte{0}) == 4 && v.printableFrom(1) && v.contains("/"))
}

func xdmcp(v *view) verdict {
	return is(v.u16(0) == 1 && v.u16(2) >= 1 && v.u16(2) <= 14 && v.u16(4) == len(v.p)-6 && v.port(177))
}
