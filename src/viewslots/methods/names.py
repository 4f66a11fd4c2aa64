"""The registry: every method's name, and where its class is. Light, so that the command line can list it at once."""

METHODS = {
    "ocloc": "viewslots.methods.ocloc.model:Ocloc",
    "per-view": "viewslots.methods.per_view.model:PerView",
    "umbra": "viewslots.methods.umbra.model:Umbra",
    "slot-attention": "viewslots.methods.slot_attention.model:SlotAttention",
    "kmeans": "viewslots.methods.kmeans.model:KMeansMethod",
}
