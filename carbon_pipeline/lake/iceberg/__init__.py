"""The lake on Apache Iceberg, through PyIceberg: the one edge that talks to catalogs and writes data files."""
