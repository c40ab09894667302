// ipsec_mb: seals or hashes the packets of a file by Intel's ipsec-mb, a batch at a time, in place.
//
//	ipsec_mb FILE
//
// FILE is { u32 what, packets, size } and packets of { u8 key[32], nonce[12], aad[8], text[size], want[] }, where want is the
// sealed text with its tag of 16 bytes, or the hash of 32 (role.WriteCrypto). The results of the first batch are compared.
#include "peer.h"
#include <intel-ipsec-mb.h>

enum { AES128, AES256, CHACHA, SHA256, MOST = 64, TAG = 16, HASH = 32 };

struct packet {
	u8 key[32], nonce[12], aad[8];
	u8 *text, *tag, *want;
	struct gcm_key_data gcm;
};

static IMB_MGR *mgr;
static struct packet *all;
static u32 what, packets, size;

static void refuse(const char *why, u32 n) {
	fprintf(stderr, "ipsec_mb: %s: %u\n", why, n);
	exit(1);
}

static void get(FILE *f, void *to, u64 n) {
	if (fread(to, 1, n, f) != n)
		refuse("the file is short", n);
}

static void *room(u64 n) {
	void *p = aligned_alloc(64, (n + 63) & ~63ull);
	if (!p)
		die("memory");
	return p;
}

static void read_all(const char *path) {
	FILE *f = fopen(path, "rb");
	if (!f)
		die(path);
	get(f, &what, 4), get(f, &packets, 4), get(f, &size, 4);
	if (what > SHA256 || packets > MOST || size > 1 << 20)
		refuse("no file of packets", what);
	u64 want = what == SHA256 ? HASH : size + TAG;
	all = room(packets * sizeof *all);
	for (u32 i = 0; i < packets; i++) {
		struct packet *p = &all[i];
		p->text = room(size + HASH), p->tag = p->text + size, p->want = room(want);
		get(f, p->key, 32), get(f, p->nonce, 12), get(f, p->aad, 8), get(f, p->text, size), get(f, p->want, want);
		if (what == AES128)
			IMB_AES128_GCM_PRE(mgr, p->key, &p->gcm);
		if (what == AES256)
			IMB_AES256_GCM_PRE(mgr, p->key, &p->gcm);
	}
	fclose(f);
}

static void describe(IMB_JOB *j, struct packet *p) {
	memset(j, 0, sizeof *j);
	j->src = p->text;
	j->msg_len_to_hash_in_bytes = size;
	j->auth_tag_output = p->tag;
	j->cipher_direction = IMB_DIR_ENCRYPT;
	if (what == SHA256) {
		j->cipher_mode = IMB_CIPHER_NULL, j->hash_alg = IMB_AUTH_SHA_256;
		j->chain_order = IMB_ORDER_HASH_CIPHER, j->auth_tag_output_len_in_bytes = HASH;
		return;
	}
	j->dst = p->text, j->msg_len_to_cipher_in_bytes = size;
	j->iv = p->nonce, j->iv_len_in_bytes = 12;
	j->cipher_mode = IMB_CIPHER_CHACHA20_POLY1305, j->hash_alg = IMB_AUTH_CHACHA20_POLY1305;
	j->chain_order = IMB_ORDER_CIPHER_HASH, j->auth_tag_output_len_in_bytes = TAG;
	j->enc_keys = j->dec_keys = p->key, j->key_len_in_bytes = 32;
	j->u.CHACHA20_POLY1305.aad = p->aad, j->u.CHACHA20_POLY1305.aad_len_in_bytes = 8;
}

static u32 finished(IMB_JOB *j) {
	u32 n = 0;
	for (; j; n++, j = IMB_GET_COMPLETED_JOB(mgr))
		if (j->status != IMB_STATUS_COMPLETED)
			refuse("status of a job", j->status);
	return n;
}

static void batch(void) {
	static struct gcm_context_data context;
	u32 n = 0;
	for (u32 i = 0; i < packets; i++) {
		struct packet *p = &all[i];
		switch (what) {
		case AES128:
			IMB_AES128_GCM_ENC(mgr, &p->gcm, &context, p->text, p->text, size, p->nonce, p->aad, 8, p->tag, TAG);
			break;
		case AES256:
			IMB_AES256_GCM_ENC(mgr, &p->gcm, &context, p->text, p->text, size, p->nonce, p->aad, 8, p->tag, TAG);
			break;
		default:
			describe(IMB_GET_NEXT_JOB(mgr), p);
			n += finished(IMB_SUBMIT_JOB_NOCHECK(mgr));
		}
	}
	if (what < CHACHA)
		return;
	for (IMB_JOB *j; (j = IMB_FLUSH_JOB(mgr));)
		n += finished(j);
	if (n != packets)
		refuse("jobs", n);
}

int main(int argc, char **argv) {
	IMB_ARCH arch;
	if (argc != 2)
		return 2;
	mgr = alloc_mb_mgr(0);
	if (!mgr)
		die("alloc_mb_mgr");
	init_mb_mgr_auto(mgr, &arch);
	read_all(argv[1]);
	batch();
	for (u32 i = 0; i < packets; i++)
		if (memcmp(what == SHA256 ? all[i].tag : all[i].text, all[i].want, what == SHA256 ? HASH : size + TAG))
			refuse("another result for packet", i);
	char version[64];
	snprintf(version, sizeof version, "%s, architecture %d", imb_get_version_str(), arch);
	ready(version);
	while (!stopped) {
		batch();
		count.bytes += (u64)packets * size;
		count.packets += packets;
	}
	print_counters(1);
	return 0;
}
