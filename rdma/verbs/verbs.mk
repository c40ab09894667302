# The libraries of millrace exec --rdma: libibverbs, librdmacm, and those of two vendors with functions that fail. A .map has their names and
# versions.
VERBS   := rdma/verbs/build
VERBSCC  = $(CC) -std=c11 -O2 -fPIC -shared -Wall -Wextra -Werror -fvisibility=hidden

$(VERBS)/libibverbs.so.1: $(wildcard rdma/verbs/*.c rdma/verbs/*.h) rdma/verbs/verbs.map shim/preload/ring.h
	$(VERBSCC) -Wl,-soname,$(@F) -Wl,--version-script=rdma/verbs/verbs.map -o $@.new $(filter %.c,$^) -lpthread
	@mv $@.new $@

$(VERBS)/librdmacm.so.1: $(wildcard rdma/rdmacm/*.c rdma/rdmacm/*.h) rdma/verbs/abi.h rdma/verbs/channel.h rdma/rdmacm/rdmacm.map $(VERBS)/libibverbs.so.1
	$(VERBSCC) -Wl,-soname,$(@F) -Wl,--version-script=rdma/rdmacm/rdmacm.map -o $@.new $(filter %.c,$^) $(VERBS)/libibverbs.so.1 -lpthread
	@mv $@.new $@

$(VERBS)/lib%.so.1: rdma/verbs/%.map
	@sed -n 's/^\t\([a-z_0-9]*\);$$/__attribute__((visibility("default"))) void *\1(void) { return 0; }/p' $< >$@.c
	$(VERBSCC) -Wl,-soname,$(@F) -Wl,--version-script=$< -o $@.new $@.c
	@mv $@.new $@; rm $@.c
